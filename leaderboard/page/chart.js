"use strict";
// Charts as inline SVG. Every number comes as text from the data; nothing is computed but positions.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 250, LEFT = 50, TOP = 10, BOTTOM = 40, LETTER = 6.6, LINE = 15; // in px of the screen
const DASHES = { dense: "9 4", base: "2 4" }; // models drawn as lines across
const STROKES = ["", "7 3", "2 3"];

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
 * The range of an axis: all values, but for those far from the middle half of the scores (Tukey's fences), which would
 * press all others together. What must be seen is in it anyway. What lies outside is drawn at the edge, with a mark.
 */
function range(scores, ends, whole) {
  const order = [...scores].sort((a, b) => a - b);
  const at = (share) => order[Math.round(share * (order.length - 1))];
  const reach = 1.5 * (at(0.75) - at(0.25)) || Infinity;
  const inside = [...scores, ...ends].filter((one) => one >= at(0.25) - reach && one <= at(0.75) + reach).concat(whole);
  const low = Math.min(...inside), high = Math.max(...inside), pad = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
}

/** Heights of labels that want to stand at `wanted`, moved apart so that none covers another. */
function apart(wanted, low, high) {
  const order = wanted.map((y, at) => [y, at]).sort((a, b) => a[0] - b[0]);
  const placed = [];
  order.forEach(([y], at) => placed.push(Math.max(y, at ? placed[at - 1] + LINE : low)));
  for (let at = placed.length - 1, most = high; at >= 0; at -= 1, most = placed[at + 1] - LINE) placed[at] = Math.min(placed[at], most);
  const found = [];
  order.forEach(([, at], place) => { found[at] = placed[place]; });
  return found;
}

/**
 * Quality against saved compute. Lines that are lit have names, intervals and values; the others stand behind them.
 * @param {{x: number[], curves: {name: string, colour: string, kind: number, dash: number, lit: boolean, points: ({y:
 *   number, low: number|null, high: number|null, text: string}|null)[]}[], rules: {name: string, y: number}[], random:
 *   (number|null)[], xTitle: string, yTitle: string, title: string, key: string, lowerIsBetter: boolean}} what
 * @param {number} width of the screen, in px
 * @param {(text: string) => void} say shows a value
 * @param {(name: string) => void} pick chooses a method
 */
function chart(what, width, say, pick) {
  const lit = what.curves.filter((curve) => curve.lit);
  const points = (curves) => curves.flatMap((curve) => curve.points.filter(Boolean));
  if (!points(what.curves).length) return null;
  const rules = what.rules.map((rule) => rule.y);
  const some = points(lit.length ? lit : what.curves);
  const ends = some.flatMap((one) => [one.low, one.high]).filter((one) => one !== null);
  const [low, high] = range(some.map((one) => one.y).concat(rules), ends, what.rules.filter((rule) => rule.name !== "base").map((rule) => rule.y));
  const names = [...lit.map((curve) => curve.name), ...what.rules.map((rule) => `${rule.name} ↑`)];
  const right = Math.min(0.4 * width, 14 + LETTER * Math.max(0, ...names.map((name) => name.length)));
  const end = width - right, last = what.x.at(-1) || 1, first = what.x[0];
  const px = (x) => LEFT + 6 + ((x - first) / (last - first || 1)) * (end - LEFT - 12);
  const free = (y) => HEIGHT - BOTTOM - ((y - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const py = (y) => Math.max(TOP, Math.min(HEIGHT - BOTTOM, free(y)));
  const out = (y) => y < low || y > high;
  const drawn = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "group", tabindex: "0", "data-key": what.key,
    "aria-label": `Chart: ${what.title}. Arrow keys read the values, Enter pins a method. The table below has the same numbers.` });
  const picture = shape("g", { "aria-hidden": "true" });
  drawn.append(picture);

  const floor = what.lowerIsBetter ? TOP : HEIGHT - BOTTOM;
  const reached = what.random.map((y, at) => (y === null ? null : [px(what.x[at]), py(y)])).filter(Boolean);
  if (reached.length > 1) picture.append(shape("path", { class: "noskill", d: `M${reached[0][0]} ${floor}L${reached.map(([x, y]) => `${x} ${y}`).join("L")}L${reached.at(-1)[0]} ${floor}Z` }));
  for (const y of ticks(low, high, 5)) picture.append(shape("line", { class: "grid", x1: LEFT, x2: end, y1: py(y), y2: py(y) }), shape("text", { class: "tick", x: LEFT - 6, y: py(y) + 4, "text-anchor": "end" }, String(y)));
  const room = Math.ceil(34 / Math.max(1, (px(last) - px(first)) / Math.max(1, what.x.length - 1))); // between numbers
  what.x.forEach((x, at) => { if (at % room === 0) picture.append(shape("text", { class: "tick", x: px(x), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, `${x}`)); });
  picture.append(shape("text", { class: "title", x: (LEFT + end) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, what.xTitle),
    shape("text", { class: "title", x: 12, y: (TOP + HEIGHT - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(TOP + HEIGHT - BOTTOM) / 2})` }, what.yTitle));
  for (const rule of what.rules) picture.append(shape("line", { class: `rule ${rule.name}`, x1: LEFT, x2: end, y1: py(rule.y), y2: py(rule.y), "stroke-dasharray": DASHES[rule.name] || "1 3" }));

  const spots = [];
  for (const curve of [...what.curves].sort((a, b) => a.lit - b.lit)) {
    const group = shape("g", { class: `series ${curve.colour}${curve.lit ? " lit" : " faint"}`, "data-name": curve.name });
    let path = "", open = false;
    curve.points.forEach((point, at) => {
      if (!point) { open = false; return; }
      const x = px(what.x[at]), y = py(point.y);
      path += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
      open = true;
      spots.push({ curve, x, y, at, text: `${curve.name} at ${what.x[at]} %: ${point.text}` });
      if (!curve.lit) return;
      if (point.low !== null) {
        group.append(shape("line", { class: "spread", x1: x, x2: x, y1: py(point.low), y2: py(point.high) }));
        // A cut stands where an interval goes on outside the picture.
        for (const [bound, edge] of [[point.low, HEIGHT - BOTTOM], [point.high, TOP]]) if (out(bound)) group.append(shape("path", { class: "cut", d: `M${x - 4} ${edge - 2}L${x + 4} ${edge + 2}` }));
      }
      if (out(point.y)) group.append(shape("path", { class: "beyond", d: point.y > high ? `M${x - 5} ${TOP + 8}L${x} ${TOP}L${x + 5} ${TOP + 8}Z` : `M${x - 5} ${HEIGHT - BOTTOM - 8}L${x} ${HEIGHT - BOTTOM}L${x + 5} ${HEIGHT - BOTTOM - 8}Z` }));
      else group.append(marker(curve.kind, x, y, 4.5));
    });
    group.prepend(shape("path", { class: "line", d: path, "stroke-dasharray": STROKES[curve.dash] }));
    picture.append(group);
  }
  const marked = [...lit.map((curve) => { const spot = spots.filter((one) => one.curve === curve).at(-1); return spot && { name: curve.name, colour: curve.colour, ...spot }; }).filter(Boolean),
    ...what.rules.map((rule) => ({ name: rule.name + (rule.y > high ? " ↑" : rule.y < low ? " ↓" : ""), colour: "", x: end, y: py(rule.y) }))];
  const heights = apart(marked.map((one) => one.y), TOP + 4, HEIGHT - BOTTOM);
  const letters = Math.floor((right - 12) / LETTER);
  marked.forEach((one, at) => picture.append(shape("path", { class: `lead ${one.colour}`, d: `M${one.x + 5} ${one.y}L${end + 6} ${heights[at]}` }),
    shape("text", { class: `name ${one.colour}`, x: end + 8, y: heights[at] + 4 }, one.name.length > letters ? `${one.name.slice(0, letters - 1)}…` : one.name)));

  const ring = shape("circle", { class: "ring", r: 8, cx: -20, cy: -20 });
  picture.append(ring);
  const order = spots.filter((one) => one.curve.lit);
  let place = -1;
  const show = (spot) => { ring.setAttribute("cx", spot.x); ring.setAttribute("cy", spot.y); say(spot.text); };
  const near = (event) => {
    const box = drawn.getBoundingClientRect(), scale = width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const away = (spot) => Math.hypot(spot.x - x, spot.y - y) - (spot.curve.lit ? 6 : 0);
    const found = spots.reduce((best, spot) => (!best || away(spot) < away(best) ? spot : best), null);
    return found && away(found) < 18 ? found : null;
  };
  drawn.addEventListener("pointermove", (event) => { const spot = near(event); if (spot) show(spot); });
  drawn.addEventListener("click", (event) => { const spot = near(event); if (spot) pick(spot.curve.name); });
  drawn.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && place >= 0) { pick(order[place].curve.name); return; }
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], across = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!order.length || (!step && !across)) return;
    event.preventDefault();
    if (step || place < 0) place = (place + (step || 1) + order.length) % order.length;
    else {
      const now = order[place], curves = unique(order.map((one) => one.curve));
      const next = curves[(curves.indexOf(now.curve) + across + curves.length) % curves.length];
      const there = order.map((one, at) => [one, at]).filter(([one]) => one.curve === next);
      place = (there.find(([one]) => one.at === now.at) || there[0])[1];
    }
    show(order[place]);
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
