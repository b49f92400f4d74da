// Square matrices as shaded cells, with the pointer's or the keyboard's cell named.

const measure = document.createElement("canvas").getContext("2d");

function textWidth(text, font = "12px system-ui, sans-serif") {
  measure.font = font;
  return measure.measureText(text).width;
}

// From this share on, a cell is nearer to its full colour than text on it could be read in the usual one.
const STRONG = 0.68;

// spec: label (said to screen readers), names (of rows and columns), cell(row, column) = {share (-1..1), text} or
// null for none, tell(row, column) = nodes for the tip, and, if wanted, named (write the names), largest (cell, px).
function heatmap(host, spec) {
  const { names, cell, tell, named = false, largest = 44 } = spec;
  const n = names.length;
  const frame = host.appendChild(el("div", { class: "heatmap" }));

  onWidth(frame, (width) => {
    const short = names.map((name) => shorten(name, 22));
    const longest = named ? Math.max(...short.map((name) => textWidth(name))) : 0;
    // Beyond this the names would take more room than the cells.
    const written = named && width - longest - 14 >= n * 13;
    const margin = written ? Math.ceil(longest) + 14 : 1;
    const above = written ? Math.ceil(longest * 0.72) + 14 : 1;
    const size = Math.min(largest, (width - margin - (written ? longest * 0.72 : 1)) / n);
    const gap = size > 14 ? 1.5 : size > 7 ? 0.75 : 0;
    const total = [margin + n * size + (written ? longest * 0.72 : 1), above + n * size + 1];
    const picture = svg("svg", {
      width: Math.min(width, total[0]),
      height: total[1],
      role: "img",
      tabindex: 0,
      "aria-label": `${spec.label}. Arrow keys read single cells.`,
    });
    const field = { x: margin, y: above, width: n * size, height: n * size };
    picture.append(svg("rect", { class: "field", ...field }));
    const rowNames = [];
    const columnNames = [];
    for (let i = 0; i < n && written; i += 1) {
      const middle = (i + 0.5) * size;
      rowNames.push(svg("text", { class: "tick", x: margin - 8, y: above + middle + 4, "text-anchor": "end" }, short[i]));
      const turn = `translate(${margin + middle + 3} ${above - 7}) rotate(-45)`;
      columnNames.push(svg("text", { class: "tick", transform: turn }, short[i]));
    }
    picture.append(...rowNames, ...columnNames);
    for (let r = 0; r < n; r += 1) {
      for (let c = 0; c < n; c += 1) {
        const found = cell(r, c);
        if (!found) continue;
        const [x, y] = [margin + c * size, above + r * size];
        const square = { x: x + gap / 2, y: y + gap / 2, width: size - gap, height: size - gap, rx: size > 14 ? 2.5 : 0 };
        const strength = Math.abs(found.share);
        const kind = found.share < 0 ? "cell negative" : "cell";
        picture.append(svg("rect", { class: "blank", ...square }));
        if (strength > 0.004) picture.append(svg("rect", { class: kind, ...square, "fill-opacity": strength.toFixed(3) }));
        if (found.text && size >= 19) {
          const place = { x: x + size / 2, y: y + size / 2 + 4, "text-anchor": "middle" };
          picture.append(svg("text", { class: strength > STRONG ? "count strong" : "count", ...place }, found.text));
        }
      }
    }

    const mark = picture.appendChild(svg("rect", { class: "mark", width: size, height: size, visibility: "hidden" }));
    let [row, column] = [0, 0];
    const mute = () => {
      mark.setAttribute("visibility", "hidden");
      for (const name of [...rowNames, ...columnNames]) name.classList.remove("lit");
    };
    const clear = () => {
      mute();
      hideTip();
    };
    const point = (r, c) => {
      mute();
      [row, column] = [clamp(r, 0, n - 1), clamp(c, 0, n - 1)];
      rowNames[row]?.classList.add("lit");
      columnNames[column]?.classList.add("lit");
      mark.setAttribute("x", margin + column * size);
      mark.setAttribute("y", above + row * size);
      mark.setAttribute("visibility", "visible");
      const rect = picture.getBoundingClientRect();
      showTip(rect.left + margin + (column + 0.5) * size, rect.top + above + (row + 0.5) * size, ...tell(row, column));
    };
    picture.addEventListener("pointermove", (event) => {
      const rect = picture.getBoundingClientRect();
      const r = Math.floor((event.clientY - rect.top - above) / size);
      const c = Math.floor((event.clientX - rect.left - margin) / size);
      if (r >= 0 && c >= 0 && r < n && c < n) point(r, c);
      else clear();
    });
    picture.addEventListener("pointerleave", clear);
    picture.addEventListener("blur", clear);
    picture.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Escape") clear();
      if (!move) return;
      event.preventDefault();
      point(row + move[0], column + move[1]);
    });
    frame.replaceChildren(picture);
  });
}
