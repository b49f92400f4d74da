// What a reader needs to judge a result: equal cost, what joining brings, who was held out.

const percentOrDash = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1));

function plainTable(node, label, head, rows) {
  const heads = el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)));
  const lines = rows.map(([first, ...cells]) => el("tr", {}, el("th", { scope: "row" }, first), cells.map((text) => el("td", {}, text))));
  const table = el("table", {}, el("thead", {}, heads), el("tbody", {}, lines));
  node.append(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table));
}

function drawEqual() {
  if (data.methods.length < 2 || !data.equal.length) return "Equal cost: there are no methods to compare.";
  const node = section(
    "equal",
    "At equal cost",
    `Mean test ${measured} in per cent, when every method had cost the same. A local epoch is a pass of the average client over its data; time is that of training on this machine, without tests.`,
  );
  const head = ["Method", ...data.equal.map(({ budget, words }) => `After ${format.number(budget)} ${words}`), "Training in all"];
  const rows = data.methods.map((method, i) => [method.name, ...data.equal.map(({ means }) => percentOrDash(means[i])), method.trained ?? "–"]);
  plainTable(node, "Methods at equal cost", head, rows);
  return null;
}

function drawJoining() {
  const alone = data.methods.find((method) => method.id === "local");
  const joined = data.methods[0];
  if (!alone || joined === alone) return "What joining brings: nobody trained alone (`controls` in the recipe).";
  const node = section(
    "joining",
    "What joining brings each site",
    `Test ${measured} in per cent: alone, with ${joined.name}, and the difference in points. The interval is that of the second for other test samples.`,
  );
  const rows = data.clients.map((client, k) => {
    const [before, after] = [alone.finals[k][0], joined.finals[k][0]];
    const difference = before === null || after === null ? "–" : format.points(after - before);
    const interval = joined.intervals[k];
    return [client, percentOrDash(before), percentOrDash(after), difference, interval ? `${(100 * interval[0]).toFixed(0)} to ${(100 * interval[1]).toFixed(0)}` : "–"];
  });
  plainTable(node, "What joining brings", ["Site", "Alone", joined.name, "Difference", "95 % interval"], rows);
  return null;
}

function drawSplit() {
  if (!data.split.length) return "Who was held out: the run kept no account of its split.";
  const node = section("split", "What the sites hold", "Samples for training and test, and the people of the test who are not among those trained on.");
  const named = (people) => (people === null ? "not known" : people.length ? people.slice(0, 12).join(", ") + (people.length > 12 ? ` and ${people.length - 12} more` : "") : "nobody");
  const rows = data.split.map((site) => [site.client, String(site.train), String(site.test), String(site.classes.length), site.people === null ? "not known" : String(site.people), named(site.held_out)]);
  plainTable(node, "What the sites hold", ["Site", "Training", "Test", "Classes", "People trained on", "People held out"], rows);
  const items = data.split.map((site) => el("li", {}, el("b", {}, site.client), ": ", site.classes.map(([name, train, test]) => `${name} ${train} + ${test}`).join(", ")));
  node.append(el("details", {}, el("summary", {}, "Samples of each class, training + test"), el("ul", {}, items)));
  return null;
}
