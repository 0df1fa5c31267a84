"use strict";
// Charts as inline SVG. Every number comes as text from the data; nothing is computed but positions.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600, HEIGHT = 320, LEFT = 56, RIGHT = 30, TOP = 12, BOTTOM = 46;
const DASHES = { dense: "9 4", base: "2 4" }; // models drawn as lines across

/** An SVG element with attributes and children. */
function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Steps of a pleasant width over a range. */
function ticks(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(Number(at.toPrecision(6)));
  return found;
}

/** One of six marker shapes around a point. */
function marker(kind, x, y, size = 5) {
  const s = size;
  const paths = [
    () => shape("circle", { cx: x, cy: y, r: s * 0.9 }),
    () => shape("rect", { x: x - s * 0.8, y: y - s * 0.8, width: s * 1.6, height: s * 1.6 }),
    () => shape("path", { d: `M${x} ${y - s}L${x + s} ${y + s * 0.8}L${x - s} ${y + s * 0.8}Z` }),
    () => shape("path", { d: `M${x} ${y - s * 1.1}L${x + s * 1.1} ${y}L${x} ${y + s * 1.1}L${x - s * 1.1} ${y}Z` }),
    () => shape("path", { d: `M${x} ${y + s}L${x + s} ${y - s * 0.8}L${x - s} ${y - s * 0.8}Z` }),
    () => shape("path", { d: `M${x - s} ${y - s}L${x + s} ${y + s}M${x - s} ${y + s}L${x + s} ${y - s}`, "stroke-width": 2.5 }),
  ];
  return paths[kind % paths.length]();
}

/**
 * Quality against saved compute.
 * @param {{x: number[], curves: {name: string, colour: string, kind: number, points: ({y: number, low: number|null,
 *   high: number|null}|null)[], faded: boolean}[], dense: number|null, base: number|null, random: (number|null)[],
 *   xTitle: string, yTitle: string, title: string, lowerIsBetter: boolean}} what
 */
function chart(what) {
  const values = what.curves.flatMap((curve) => curve.points.flatMap((point) => (point ? [point.y, point.low, point.high] : [])))
    .concat(what.dense, what.base, what.random).filter((value) => value !== null && Number.isFinite(value));
  if (!values.length) return null;
  // A very wide interval would press all curves together: it takes half their range at most, and is cut off there.
  const scores = what.curves.flatMap((curve) => curve.points.flatMap((point) => (point ? [point.y] : [])));
  const room = (scores.length && 0.5 * (Math.max(...scores) - Math.min(...scores))) || Infinity;
  let low = Math.max(Math.min(...values), Math.min(...scores, what.dense ?? Infinity, what.base ?? Infinity) - room);
  let high = Math.min(Math.max(...values), Math.max(...scores, what.dense ?? -Infinity, what.base ?? -Infinity) + room);
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  low = low >= 0 ? Math.max(0, low - pad) : low - pad;
  high += pad;
  const last = what.x.at(-1) || 1, first = what.x[0];
  const px = (x) => LEFT + ((x - first) / (last - first || 1)) * (WIDTH - LEFT - RIGHT);
  const py = (y) => HEIGHT - BOTTOM - ((y - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const drawn = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${what.title}. The table below has the same numbers.` });

  const floor = what.lowerIsBetter ? TOP : HEIGHT - BOTTOM;
  const reached = what.random.map((y, at) => (y === null ? null : [px(what.x[at]), py(y)])).filter(Boolean);
  if (reached.length > 1) {
    const edge = reached.map(([x, y]) => `${x} ${y}`).join("L");
    drawn.append(shape("path", { class: "noskill", d: `M${reached[0][0]} ${floor}L${edge}L${reached.at(-1)[0]} ${floor}Z` }));
  }
  for (const y of ticks(low, high, 5)) {
    drawn.append(shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: py(y), y2: py(y) }),
      shape("text", { class: "tick", x: LEFT - 8, y: py(y) + 4, "text-anchor": "end" }, String(y)));
  }
  for (const x of what.x) drawn.append(shape("text", { class: "tick", x: px(x), y: HEIGHT - BOTTOM + 19, "text-anchor": "middle" }, `${x} %`));
  drawn.append(shape("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, what.xTitle),
    shape("text", { x: 14, y: (TOP + HEIGHT - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(TOP + HEIGHT - BOTTOM) / 2})` }, what.yTitle));
  for (const [name, dash] of Object.entries(DASHES)) {
    const y = what[name];
    if (y !== null) drawn.append(shape("line", { class: `rule ${name}`, x1: LEFT, x2: WIDTH - RIGHT, y1: py(y), y2: py(y), "stroke-dasharray": dash }));
  }
  what.curves.forEach((curve, number) => {
    const group = shape("g", { class: `series ${curve.colour}${curve.faded ? " faded" : ""}` });
    const shift = (number - (what.curves.length - 1) / 2) * 2.5; // bars of one level stay apart
    let path = "", open = false;
    curve.points.forEach((point, at) => {
      if (!point) { open = false; return; }
      const x = px(what.x[at]) + (at === 0 && first === 0 ? Math.abs(shift) : shift), y = py(point.y);
      path += `${open ? "L" : "M"}${x} ${y}`;
      open = true;
      if (point.low !== null) group.append(shape("line", { x1: x, x2: x, y1: py(Math.max(point.low, low)), y2: py(Math.min(point.high, high)), "stroke-width": 1.3, opacity: 0.7 }));
      group.append(marker(curve.kind, x, y));
    });
    group.prepend(shape("path", { class: "line", d: path }));
    group.append(shape("title", {}, curve.name));
    drawn.append(group);
  });
  return drawn;
}

/** A training curve. */
function lossChart(points) {
  if (points.length < 2) return null;
  const steps = points.map((one) => one[0]), losses = points.map((one) => one[1]);
  const high = Math.max(...losses), low = Math.min(0, ...losses), end = Math.max(...steps) || 1;
  const d = points.map(([step, loss], at) => `${at ? "L" : "M"}${(40 + (step / end) * 350).toFixed(1)} ${(110 - ((loss - low) / (high - low || 1)) * 95).toFixed(1)}`).join("");
  return shape("svg", { viewBox: "0 0 400 130", class: "loss", role: "img", "aria-label": `Training loss from ${losses[0]} to ${losses.at(-1)} in ${end} steps` },
    shape("text", { class: "tick", x: 34, y: 20, "text-anchor": "end" }, String(high)), shape("text", { class: "tick", x: 34, y: 112, "text-anchor": "end" }, String(low)),
    shape("text", { class: "tick", x: 390, y: 127, "text-anchor": "end" }, `step ${end}`), shape("path", { d }));
}
