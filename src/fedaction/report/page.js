// Puts the page together, section by section.

document.getElementById("facts").append(
  ...data.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { title: value }, value))),
);
if (data.synthetic) {
  document.getElementById("note").append(
    el(
      "p",
      { class: "note" },
      el("b", {}, "Synthetic data. "),
      "These numbers come from the embedded world (stage): simulated actors, no real recordings. ",
      "They show how the methods behave here, not how well they would do on a real dataset.",
    ),
  );
}

if (data.warnings.length) {
  const items = data.warnings.map((text) => el("li", {}, text));
  document.getElementById("note").append(el("div", { class: "note" }, el("b", {}, "Before you believe it"), el("ul", {}, items)));
}

const missing = [];
for (const draw of [drawAccuracy, drawClock, drawTable, drawEqual, drawProfile, drawSites, drawJoining, drawSplit, drawLoss, drawConfusion, drawTraffic, drawTopology, drawPlayer, drawAnalyses]) {
  try {
    const reason = draw();
    if (reason) missing.push(reason);
  } catch (error) {
    // One section that cannot be drawn must not take the others with it.
    console.error(error);
    missing.push(`${draw.name} failed: ${error.message}`);
  }
}

const footer = document.getElementById("footer");
const rowsOf = (rows) => el("table", {}, el("tbody", {}, rows.map(([key, value]) => el("tr", {}, el("th", { scope: "row" }, key), el("td", {}, value)))));
for (const [title, rows] of [["Recipe", data.recipe], ["Environment", data.environment]]) {
  if (rows.length) footer.append(el("details", {}, el("summary", {}, title), rowsOf(rows)));
}
if (missing.length || data.notes.length) {
  const items = [...data.notes, ...missing].map((text) => el("li", {}, text));
  footer.append(el("div", { class: "missing" }, el("h2", {}, "Not in this report"), el("ul", {}, items)));
}
