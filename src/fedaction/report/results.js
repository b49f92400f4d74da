// Accuracy, losses, the final table, confusion and traffic.

const seedsNote = data.methods.some((method) => method.seeds > 1)
  ? " Lines are means over seeds; bands show one standard deviation."
  : "";
const methodEntries = data.methods.map((method, i) => [method.name, methodColour(i), methodDash(i)]);

function methodSeries(pick) {
  return data.methods
    .map((method, i) => ({ ...pick(method), name: method.name, colour: methodColour(i), dash: methodDash(i) }))
    .filter((line) => line.y?.some((value) => value !== null));
}

const measured = data.measure;
const capital = measured[0].toUpperCase() + measured.slice(1);
const unlabelled = measured === "recall at 1";

function drawAccuracy() {
  const series = methodSeries((method) => method.accuracy);
  if (!series.length) return `${capital} over rounds: none was measured.`;
  const node = section(
    "accuracy",
    `${capital} over rounds`,
    (unlabelled
      ? "The share of test recordings whose nearest training recording at the same client shows the same action."
      : "The share of test samples that were named rightly, each client on its own test split.") + seedsNote,
  );
  if (data.methods.length > 1) node.append(legend(methodEntries));
  const card = node.appendChild(el("figure", {}, el("figcaption", {}, data.clients.length === 1 ? data.clients[0] : "Mean over clients")));
  const axes = [["rounds", "Rounds"], ["epochs", "Local epochs"], ["time", "Seconds of training"]].filter(([by]) => by === "rounds" || data.methods.every((method) => method.costs[by]));
  const draw = (index) => {
    const [by, words] = axes[index];
    const lines = by === "rounds" ? series : methodSeries((method) => ({ ...method.accuracy, x: method.costs[by] }));
    [...card.querySelectorAll(".chart")].forEach((chart) => chart.remove());
    const across = by === "rounds" ? undefined : words.toLowerCase();
    lineChart(card, { label: `Mean test ${measured} by ${words.toLowerCase()}`, series: lines, show: format.percent, height: 320, ends: true, across });
  };
  if (axes.length > 1) card.before(choice("By", axes.map(([, words]) => words), draw));
  draw(0);
  if (data.clients.length < 2) return null;

  const lines = data.clients.map((_, k) => methodSeries((method) => method.clients[k] ?? {}));
  const domain = extent(lines.flat());
  if (data.many) drawSpread(node);
  node.append(el("h3", {}, data.many ? `${data.clients.length} of ${data.many.count} clients` : "Each client"));
  if (data.many) node.append(el("p", {}, "Evenly from the worst to the best at the end; metrics.jsonl has all. All that follows of single clients is of these."));
  const grid = node.appendChild(el("div", { class: "multiples" }));
  const add = (from, to) => {
    for (let k = from; k < Math.min(to, data.clients.length); k += 1) {
      if (!lines[k].length) continue;
      const group = data.groups[k] && new Set(data.groups).size > 1 ? el("span", {}, data.groups[k]) : null;
      const small = grid.appendChild(el("figure", {}, el("figcaption", {}, data.clients[k], " ", group)));
      const label = `Test ${measured} of client ${data.clients[k]} by round`;
      lineChart(small, { label, title: data.clients[k], series: lines[k], show: format.percent, height: 150, domain });
    }
  };
  const shown = 12;
  add(0, shown);
  if (data.clients.length > shown) {
    const more = el("button", { type: "button" }, `Show all ${data.clients.length} clients`);
    more.addEventListener("click", () => {
      more.remove();
      add(shown, Infinity);
    });
    node.append(more);
  }
  return null;
}

// Many clients: quantiles over all of them by round, and the means of their groups.
function drawSpread(node) {
  node.append(el("h3", {}, `All ${data.many.count} clients`));
  const card = el("figure");
  const pick = (index) => {
    card.replaceChildren(el("figcaption", {}, `${data.methods[index].name}: ${measured} over clients`));
    const series = data.many.spread[index].map((line, i) => ({ ...line, colour: methodColour(i), dash: methodDash(i) }));
    lineChart(card, { label: `Spread of ${measured} over clients by round`, series, show: format.percent, height: 260, ends: true });
  };
  if (data.methods.length > 1) node.append(choice("Method", data.methods.map((method) => method.name), pick));
  node.append(legend(data.many.spread[0].map((line, i) => [line.name, methodColour(i), methodDash(i)])), card);
  pick(0);
  const rows = data.many.groups.map(([group, size, means]) => [group || "–", String(size), ...means.map(percentOrDash)]);
  plainTable(node, "Means of groups", ["Group", "Clients", ...data.methods.map((method) => method.name)], rows);
}

function drawLoss() {
  const names = [...new Set(data.methods.flatMap((method) => method.losses.map((loss) => loss.name)))];
  if (!names.length) return "Losses: none were recorded.";
  const intro = "What local training minimises, as the mean over the clients of a round; lower is better." + seedsNote;
  const node = section("loss", "Training loss", intro);
  const card = el("figure");
  const terms = (method) => method.losses.map((loss) => loss.name).filter((name) => name !== "test loss").sort().join();
  const pick = (index) => {
    const name = names[index];
    const series = methodSeries((method) => method.losses.find((loss) => loss.name === name) ?? {});
    card.replaceChildren();
    // Sums of unlike terms say nothing beside each other: each has an axis of its own.
    if (name !== "test loss" && series.length > 1 && new Set(data.methods.map(terms)).size > 1) {
      for (const line of series) {
        card.append(el("figcaption", {}, line.name));
        lineChart(card, { label: `${title(name)} of ${line.name} by round`, series: [line], show: format.number, height: 180 });
      }
      return;
    }
    if (series.length) lineChart(card, { label: `${title(name)} by round`, series, show: format.number, height: 260, ends: true });
    else card.append(el("p", {}, "No finite value was recorded."));
  };
  const title = (name) => (name === "loss" ? "Training loss" : name === "test loss" ? "Test loss" : `Training: ${name}`);
  node.append(choice("Quantity", names.map(title), pick));
  if (data.methods.length > 1) node.append(legend(methodEntries));
  node.append(card);
  pick(0);
  return null;
}

function drawTable() {
  const columns = [...data.clients.map((_, k) => (method) => method.finals[k]), (method) => method.final];
  if (data.methods.every((method) => method.final[0] === null)) return `Final ${measured}: nothing was measured.`;
  const base = data.methods.length > 1 ? data.methods[1] : null;
  const heads = [...data.clients, "Mean"];
  const several = data.methods.some((method) => method.seeds > 1 || method.final[1] !== null);
  const node = section(
    "table",
    `Final ${measured}`,
    `Per cent${several ? ", mean ± standard deviation over seeds" : ""}.`,
    base ? ` The best of each column is bold. In parentheses: difference to ${base.name}, in points.` : "",
  );
  const best = columns.map((pick) => Math.max(...data.methods.map((method) => pick(method)[0] ?? -1)).toFixed(3));
  const judged = data.methods.some((method) => method.scores.some((text) => text !== "–"));
  const more = judged ? ["95 % interval", "Balanced", "Macro-F1"] : [];
  const rows = data.methods.map((method) => {
    const cells = columns.map((pick, k) => {
      const [mean, spread] = pick(method);
      if (mean === null) return el("td", {}, "–");
      const text = `${(100 * mean).toFixed(1)}`;
      const value = mean.toFixed(3) === best[k] && data.methods.length > 1 ? el("b", {}, text) : text;
      const reference = base && base !== method ? pick(base)[0] : null;
      const difference = reference === null ? null : el("small", {}, ` (${format.points(mean - reference)})`);
      const wide = k === columns.length - 1 ? "mean" : null;
      return el("td", { class: wide }, value, spread === null ? null : el("small", {}, ` ± ${(100 * spread).toFixed(1)}`), difference);
    });
    const beside = judged ? method.scores.map((text) => el("td", {}, text)) : [];
    return el("tr", {}, el("th", { scope: "row" }, method.name, method.complete ? null : el("small", {}, " unfinished")), cells, beside);
  });
  for (const control of data.controls) {
    const cells = [...control.finals, control.final].map((value) => el("td", {}, value === null ? "–" : (100 * value).toFixed(1)));
    rows.push(el("tr", {}, el("th", { scope: "row" }, control.name, el("small", {}, " control")), cells, more.map(() => el("td", {}))));
  }
  const head = el("tr", {}, el("th", { scope: "col" }, "Method"), [...heads, ...more].map((name) => el("th", { scope: "col" }, name)));
  const table = el("table", { class: "final" }, el("thead", {}, head), el("tbody", {}, rows));
  node.append(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Final ${measured} table` }, table));

  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const csv = [
    ["method", ...heads.flatMap((name) => (several ? [name, `${name} std`] : [name]))].map(quoted).join(","),
    ...data.methods.map((method) => {
      const values = columns.flatMap((pick) => (several ? pick(method) : [pick(method)[0]]));
      return [quoted(method.name), ...values.map((value) => value ?? "")].join(",");
    }),
    ...data.controls.map((control) => {
      const values = [...control.finals, control.final].flatMap((value) => (several ? [value, null] : [value]));
      return [quoted(control.name), ...values.map((value) => value ?? "")].join(",");
    }),
  ].join("\n");
  const said = el("span", { role: "status", class: "said" });
  const button = el("button", { type: "button" }, "Copy as CSV");
  button.addEventListener("click", async () => {
    said.textContent = (await copy(csv)) ? "Copied." : "The browser did not allow it.";
    setTimeout(() => (said.textContent = ""), 3000);
  });
  node.append(el("p", {}, button, " ", said));
  return null;
}

// The clipboard interface is refused on some file:// pages; the old command is not.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function drawConfusion() {
  if (!data.confusions.length) return "Confusion: no evidence of predictions was kept.";
  const node = section(
    "confusion",
    "Confusion matrix",
    `Each row is a true action, each column ${unlabelled ? "that of the nearest training recording" : "what was predicted"}. Cells hold counts; the shade is the share of the row.`,
  );
  let [method, client] = [0, 0];
  const controls = el("div", { class: "controls" });
  const body = el("div", { class: "beside" });
  node.append(controls, body);
  const draw = () => {
    const { classes, matrix } = data.confusions[method].clients[client];
    const sums = matrix.map((row) => row.reduce((a, b) => a + b, 0));
    const share = (r, c) => (sums[r] ? matrix[r][c] / sums[r] : 0);
    const total = sums.reduce((a, b) => a + b, 0);
    const right = matrix.reduce((sum, row, i) => sum + row[i], 0);
    const picture = el("figure");
    const mistakes = [];
    matrix.forEach((row, r) => row.forEach((count, c) => r !== c && count && mistakes.push([share(r, c), count, r, c])));
    mistakes.sort((a, b) => b[0] - a[0] || b[1] - a[1]);
    const list = mistakes.slice(0, 6).map(([part, count, r, c]) =>
      el("li", {}, el("b", {}, classes[r]), " taken for ", el("b", {}, classes[c]), el("small", {}, `${count} of ${sums[r]}, ${format.percent(part)}`)),
    );
    const title = `${right} of ${total} right${total ? ` (${format.percent(right / total)})` : ""}`;
    const aside = el("div", { class: "aside" }, el("p", { class: "figure" }, title), el("h3", {}, "Most frequent mistakes"));
    aside.append(list.length ? el("ol", {}, list) : el("p", {}, "None."));
    const recalls = classes.map((name, r) => [name, sums[r] ? matrix[r][r] / sums[r] : null, sums[r]]).filter((item) => item[1] !== null);
    recalls.sort((a, b) => a[1] - b[1]);
    const rest = recalls.map(([name, part, n]) => el("li", {}, el("b", {}, name), el("small", {}, `${format.percent(part)} of ${n}`)));
    aside.append(el("details", {}, el("summary", {}, "Recall of each class"), el("ul", {}, rest)));
    body.replaceChildren(picture, aside);
    heatmap(picture, {
      label: `Confusion matrix of client ${data.confusions[method].clients[client].client}: ${title}`,
      names: classes,
      named: true,
      cell: (r, c) => (matrix[r][c] || classes.length <= 40 ? { share: share(r, c), text: matrix[r][c] ? String(matrix[r][c]) : "" } : null),
      tell: (r, c) => [
        el("strong", {}, r === c ? `${classes[r]}, rightly` : `${classes[r]} → ${classes[c]}`),
        el("p", {}, `${matrix[r][c]} of ${sums[r]} (${format.percent(share(r, c))})`),
      ],
    });
  };
  const choose = () => {
    const names = data.confusions.map((item) => data.methods[item.method].name);
    const clients = () => choice("Client", data.confusions[method].clients.map((item) => item.client), (i) => {
      client = i;
      draw();
    });
    let picker = clients();
    if (names.length > 1) {
      controls.append(choice("Method", names, (i) => {
        const name = data.confusions[method].clients[client].client;
        method = i;
        client = Math.max(0, data.confusions[i].clients.findIndex((item) => item.client === name));
        const next = clients();
        if (next.querySelector("select")) next.querySelector("select").selectedIndex = client;
        picker.replaceWith(next);
        picker = next;
        draw();
      }));
    }
    controls.append(picker);
  };
  choose();
  draw();
  return null;
}

function drawTraffic() {
  const counted = data.methods.filter((method) => method.traffic);
  if (!counted.length) return "Traffic: no bytes were counted.";
  const node = section(
    "traffic",
    "Traffic",
    "Bytes that models and updates take on the wire, over all clients. Solid: clients to server (up); dashed: server to clients (down).",
  );
  if (data.methods.length > 1) node.append(legend(methodEntries.map(([name, colour]) => [name, colour, ""])));
  const pair = node.appendChild(el("div", { class: "pair" }));
  for (const [caption, keys] of [["Per round", ["up", "down"]], ["In all", ["totalUp", "totalDown"]]]) {
    const series = data.methods.flatMap((method, i) =>
      method.traffic
        ? keys.map((key, way) => ({ name: `${method.name} ${way ? "down" : "up"}`, colour: methodColour(i), dash: way ? "5 4" : "", ...method.traffic[key], sd: null }))
        : [],
    );
    const figure = pair.appendChild(el("figure", {}, el("figcaption", {}, caption)));
    lineChart(figure, { label: `Bytes by round, ${caption.toLowerCase()}`, series, show: format.bytes, height: 240, floor: 0 });
  }
  const end = (curve) => curve.y.at(-1) ?? 0;
  const optional = ["participants", "dropped", "late", "refused"].filter((key) => data.methods.some((method) => key in method.counts));
  const titles = { participants: "Clients a round", dropped: "Dropped", late: "Late", refused: "Refused" };
  const head = ["Method", "Up", "Down", ...optional.map((key) => titles[key])];
  const rows = data.methods.map((method) => el("tr", {}, el("th", { scope: "row" }, method.name),
    el("td", {}, method.traffic ? format.bytes(end(method.traffic.totalUp)) : "–"),
    el("td", {}, method.traffic ? format.bytes(end(method.traffic.totalDown)) : "–"),
    optional.map((key) => {
      const who = key === "refused" ? method.refused.map(([client, count]) => `${client}: ${format.number(count)}`).join(", ") : "";
      return el("td", {}, key in method.counts ? format.number(method.counts[key]) : "–", who ? el("small", {}, ` (${who})`) : null);
    })));
  const table = el("table", {}, el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows));
  node.append(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Traffic and participation" }, table));
  return null;
}
