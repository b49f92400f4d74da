// Line charts over rounds, or over time: bands, hover, keyboard.

function niceTicks(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const ticks = [];
  for (let i = Math.floor(low / step); i <= Math.ceil(high / step - 1e-9); i += 1) ticks.push(i * step);
  return ticks;
}

function roundTicks(low, high, count) {
  const step = Math.max(1, niceTicks(low, high, count)[1] - niceTicks(low, high, count)[0]);
  const whole = Math.ceil(step);
  const ticks = [];
  for (let r = Math.ceil(low / whole) * whole; r <= high; r += whole) ticks.push(r);
  return ticks;
}

// Smallest and largest value of the series, their bands included.
function extent(series) {
  let [low, high] = [Infinity, -Infinity];
  for (const { y, sd } of series) {
    y.forEach((value, i) => {
      if (value === null) return;
      const spread = sd?.[i] ?? 0;
      low = Math.min(low, value - spread);
      high = Math.max(high, value + spread);
    });
  }
  return low > high ? [0, 1] : [low, high];
}

// Runs of points that have a value; a gap in the data is a gap in the line.
function stretches(values) {
  const found = [];
  values.forEach((value, i) => {
    if (value === null) return;
    if (i === 0 || values[i - 1] === null) found.push([]);
    found.at(-1).push(i);
  });
  return found;
}

// spec: label (said to screen readers), series [{name, colour, dash, x, y, sd}], show (value to text),
// and, if wanted, height, domain [low, high], ends (name the lines at their ends), floor (lowest value of the axis),
// across (the unit of x, where that is a time from 0 on and not a round).
function lineChart(host, spec) {
  const { series, show, height = 300, ends = false, across } = spec;
  const rounds = [...new Set(series.flatMap((line) => line.x))].sort((a, b) => a - b);
  const frame = host.appendChild(el("div", { class: "chart" }));
  const at = series.map((line) => new Map(line.x.map((round, i) => [round, i])));
  let [low, high] = spec.domain ?? extent(series);
  if (spec.floor !== undefined) low = Math.min(low, spec.floor);
  if (low === high) [low, high] = [Math.min(low, 0), high || 1];
  const ticks = niceTicks(low, high, height < 200 ? 3 : 5);
  const mark = show === format.percent ? (tick) => `${Number((100 * tick).toFixed(1))}${THIN}%` : show;
  const [bottom, top] = [ticks[0], ticks.at(-1)];
  const [first, final] = across ? [0, rounds.at(-1) || 1] : [rounds[0], Math.max(rounds.at(-1), rounds[0] + 1)];
  const columns = (count) => (across ? niceTicks(first, final, count).filter((tick) => tick <= final) : roundTicks(first, final, count));
  const when = (round) => (across ? `${format.number(round)} ${across}` : `round ${round}`);
  const last = series.map((line) => line.y.findLastIndex((value) => value !== null));
  const told = series.flatMap((line, k) => (last[k] < 0 ? [] : `${line.name} ends at ${show(line.y[last[k]])}`));

  onWidth(frame, (width) => {
    const named = ends && width > 560;
    const longest = Math.max(...series.map((line) => line.name.length));
    const left = 12 + 6.6 * Math.max(...ticks.map((tick) => mark(tick).length));
    const box = { left, right: named ? 20 + 7.6 * Math.min(22, longest) : 12, top: 10, bottom: height < 200 ? 24 : 42 };
    const px = (round) => box.left + ((round - first) / (final - first)) * (width - box.left - box.right);
    const py = (value) => height - box.bottom - ((value - bottom) / (top - bottom)) * (height - box.top - box.bottom);
    const picture = svg("svg", {
      width,
      height,
      role: "img",
      tabindex: 0,
      "aria-label": `${spec.label}. ${told.join("; ")}. Arrow keys read single ${across ? "points" : "rounds"}.`,
    });

    for (const tick of ticks) {
      picture.append(
        svg("line", { class: "grid", x1: box.left, x2: width - box.right, y1: py(tick), y2: py(tick) }),
        svg("text", { class: "tick", x: box.left - 8, y: py(tick) + 4, "text-anchor": "end" }, mark(tick)),
      );
    }
    for (const round of columns(clamp(width / 65, 2, 10))) {
      picture.append(
        svg("text", { class: "tick", x: px(round), y: height - box.bottom + 18, "text-anchor": "middle" }, across ? format.number(round) : String(round)),
      );
    }
    if (height >= 200) {
      const middle = (box.left + width - box.right) / 2;
      picture.append(svg("text", { class: "axis", x: middle, y: height - 4, "text-anchor": "middle" }, across ?? "round"));
    }

    for (const { x, y, sd, colour } of series) {
      if (!sd) continue;
      for (const run of stretches(y)) {
        const edge = (sign) => (i) => `${px(x[i])},${py(clamp(y[i] + sign * (sd[i] ?? 0), bottom, top))}`;
        const outline = [...run.map(edge(1)), ...[...run].reverse().map(edge(-1))].join(" ");
        picture.append(svg("polygon", { class: "band", points: outline, style: `fill:${colour}` }));
      }
    }
    const labels = [];
    // The first series is drawn last, on top of what it is compared with.
    [...series.keys()].reverse().forEach((k) => {
      const { x, y, colour, dash, name } = series[k];
      for (const run of stretches(y)) {
        const path = run.map((i) => `${px(x[i]).toFixed(1)},${py(y[i]).toFixed(1)}`).join(" ");
        const style = `stroke:${colour}`;
        picture.append(svg("polyline", { class: k ? "line" : "line own", points: path, "stroke-dasharray": dash, style }));
      }
      if (last[k] < 0) return;
      const end = [px(x[last[k]]), py(y[last[k]])];
      picture.append(svg("circle", { cx: end[0], cy: end[1], r: k ? 3 : 4, style: `fill:${colour}` }));
      labels.push({ y: end[1], name, colour, own: k === 0 });
    });
    if (named) {
      labels.sort((a, b) => a.y - b.y);
      labels.forEach((label, i) => i && (label.y = Math.max(label.y, labels[i - 1].y + 16)));
      const overflow = Math.max(0, (labels.at(-1)?.y ?? 0) - (height - box.bottom));
      for (const { y, name, colour, own } of labels) {
        const place = { x: width - box.right + 10, y: y - overflow + 4, class: own ? "end own" : "end" };
        picture.append(svg("text", { ...place, style: `fill:${colour}` }, shorten(name, 22)));
      }
    }

    const guide = picture.appendChild(svg("g", { class: "guide" }));
    let current = rounds.length - 1;
    const point = (index, clientY) => {
      current = clamp(index, 0, rounds.length - 1);
      const round = rounds[current];
      guide.replaceChildren(svg("line", { x1: px(round), x2: px(round), y1: box.top, y2: height - box.bottom }));
      const rows = [];
      series.forEach((line, k) => {
        const i = at[k].get(round);
        if (i === undefined || line.y[i] === null) return;
        guide.append(svg("circle", { cx: px(round), cy: py(line.y[i]), r: 4.5, style: `fill:${line.colour}` }));
        rows.push([line.y[i], line, line.sd?.[i]]);
      });
      rows.sort((a, b) => b[0] - a[0]);
      const list = rows.map(([value, line, sd]) =>
        el("tr", {}, el("td", {}, swatch(line.colour, line.dash)), el("td", {}, line.name), el("td", { class: "num" },
          el("b", {}, show(value)), sd === null || sd === undefined ? "" : ` ± ${show(sd)}`)),
      );
      const rect = picture.getBoundingClientRect();
      const title = spec.title ? `${spec.title}, ${when(round)}` : when(round).replace(/^r/, "R");
      showTip(rect.left + px(round), clientY ?? rect.top + height / 2, el("strong", {}, title), el("table", {}, list));
    };
    const clear = () => {
      guide.replaceChildren();
      hideTip();
    };
    picture.addEventListener("pointermove", (event) => {
      const x = event.clientX - picture.getBoundingClientRect().left;
      const distances = rounds.map((round) => Math.abs(px(round) - x));
      point(distances.indexOf(Math.min(...distances)), event.clientY);
    });
    picture.addEventListener("pointerleave", clear);
    picture.addEventListener("blur", clear);
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") clear();
      if (!step) return;
      event.preventDefault();
      point(guide.childNodes.length ? current + step : current);
    });
    frame.replaceChildren(picture);
  });
}
