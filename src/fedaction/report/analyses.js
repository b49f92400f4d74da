// What `fedaction analyse` found: a picture and a table each.

function drawAnalyses() {
  if (!data.analyses.length) return "Analyses: none were made. `fedaction analyse DIR` makes them and adds them here.";
  const node = section("analyses", "Analyses", "A closer look at the trained networks, each from the last checkpoint.");
  for (const item of data.analyses) {
    const card = node.appendChild(el("article", { class: "analysis", "aria-label": item.title }, el("h3", {}, item.title), el("p", { class: "intro" }, item.caption)));
    if (item.picture) {
      // An image runs no script and fetches nothing, whatever the file holds.
      const source = `data:image/svg+xml;base64,${item.picture}`;
      card.append(el("figure", {}, el("img", { src: source, alt: `${item.title}. ${item.caption}` })));
    }
    const head = el("tr", {}, item.columns.map((name) => el("th", { scope: "col" }, name)));
    const rows = item.rows.map(([first, ...rest]) => el("tr", {}, el("th", { scope: "row" }, first), rest.map((cell) => el("td", {}, cell))));
    const table = el("table", {}, el("thead", {}, head), el("tbody", {}, rows));
    card.append(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${item.title}, table` }, table));
    if (item.notes.length) card.append(el("details", { class: "how" }, el("summary", {}, "How it was measured"), item.notes.map((note) => el("p", {}, note))));
  }
  return null;
}
