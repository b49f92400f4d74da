// A run between sites on machines of their own: who joined, what travelled, what was refused.

function drawSites() {
  const served = data.served;
  if (!served) return null; // a simulated run
  const node = section(
    "sites",
    "The sites",
    "Each trained on a machine of its own, with data that stayed there; no recording is in this report. ",
    `Messages to sites: ${format.bytes(served.sent)}; from sites: ${format.bytes(served.received)}, tests and repetitions included.`,
  );
  const rows = served.sites.map(([name, about, refused]) => [name, about, String(refused)]);
  plainTable(node, "The sites", ["Site", "What it has", "Updates not used"], rows);
  if (served.count > rows.length) node.append(el("p", {}, `and ${served.count - rows.length} more`));
  if (served.leftOut) node.append(el("p", {}, `Times that a site was not let in: ${served.leftOut}.`));
  if (!served.remarks.length) {
    node.append(el("p", {}, "Nothing was refused, and nobody went away."));
    return null;
  }
  const items = served.remarks.map(([when, text]) => el("li", {}, el("small", {}, `${when} UTC `), text));
  const title = `What was refused, who was left out and what failed: the last ${items.length} of ${served.warnings}`;
  node.append(el("details", {}, el("summary", {}, title), el("ul", {}, items)));
  return null;
}
