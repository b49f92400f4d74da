// Accuracy over virtual or real time, and how busy the devices were.

function drawClock() {
  if (!data.methods.some((method) => method.clock)) {
    return "Virtual time: the run had no clock. `devices` in the recipe names the devices that give it one.";
  }
  const node = section(
    "clock",
    `${capital} over ${data.clock} time`,
    data.clock === "real"
      ? `The same ${measured}, by the time that the sites took.${seedsNote}`
      : `The same ${measured}, by the time that the simulated devices would have taken: training and transfers, as their profiles say.${seedsNote}`,
  );
  if (data.methods.length > 1) node.append(legend(methodEntries));
  const series = methodSeries((method) => method.clock?.curve ?? {});
  if (series.length) {
    const card = node.appendChild(el("figure", {}, el("figcaption", {}, data.clients.length === 1 ? data.clients[0] : "Mean over clients")));
    lineChart(card, { label: `Mean test ${measured} by ${data.unit}`, series, show: format.percent, height: 320, ends: true, across: data.unit });
  }
  node.append(el("h3", {}, "How busy the devices were"));
  node.append(el("p", { class: "intro" }, "Means over devices. Updates are those of a device that the server used; staleness counts server updates."));
  const head = ["Method", data.clock === "real" ? "Real time" : "Virtual time", "Devices", "Utilisation", "Idle", "Least to most", "Updates", "Staleness"];
  const rows = data.methods.map((method) => {
    const { clock } = method;
    const cells = clock
      ? [
          clock.time,
          String(clock.devices),
          format.percent(clock.utilisation),
          format.percent(1 - clock.utilisation),
          `${format.percent(clock.least)} to ${format.percent(clock.most)}`,
          format.number(clock.updates),
          clock.staleness === null ? "–" : clock.staleness.toFixed(1),
        ]
      : head.slice(1).map(() => "–");
    return el("tr", {}, el("th", { scope: "row" }, method.name), cells.map((text) => el("td", {}, text)));
  });
  const table = el("table", {}, el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows));
  node.append(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "How busy the devices were" }, table));
  return null;
}
