// The controls; a change of any of them redraws the page.

function controls() {
  const select = (key, title, options, textOf) => element("label", {}, title, element("select", { id: `choose-${key}`, onchange: (event) => change({ [key]: event.target.value }) }, ...options.map((one) => element("option", { value: one }, textOf(one)))));
  const slider = element("input", { id: "choose-saving", type: "range", min: 0, max: data.savings.length - 1, step: 1, "aria-label": "saving asked for", oninput: (event) => change({ saving: keyOf(data.savings[event.target.value]) }) });
  byId("controls").append(select("method", "method", SPECS, (one) => one),
    element("label", {}, element("span", {}, "dial: saving asked for ", element("output", { id: "saving", for: "choose-saving" })), slider),
    select("view", "towers show", Object.keys(VIEWS), (one) => VIEWS[one]), select("theme", "theme", ["auto", "light", "dark"], (one) => one));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("controls").hidden = false;
}

/** The sentence at the top of the page. */
function sentence() {
  const asked = `${percent(Number(state.saving))} %`;
  if (!point()) return `${state.method} has no dial value for ${asked}: it was not calibrated that far, or cannot skip so much.`;
  const { by_part: parts, saved, dial } = point();
  const share = (part) => (parts[part] ? `${percent((parts[part][1] + parts[part][2]) / 2)} % of the ${part}` : "");
  return `Asked for ${asked}, ${state.method} (${method().dial_name} ${Number(dial.toPrecision(4))}) skips ${percent(saved)} %: ${["prompt", "answer"].map(share).filter(Boolean).join(", ")}.`;
}

function render() {
  if (state.theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = state.theme;
  for (const key of ["method", "view", "theme"]) byId(`choose-${key}`).value = state[key];
  const slider = byId("choose-saving"), place = data.savings.findIndex((one) => keyOf(one) === state.saving);
  slider.value = place;
  slider.setAttribute("aria-valuetext", `${percent(Number(state.saving))} %`);
  byId("choose-view").disabled = !method().scores;
  byId("saving").textContent = `${percent(Number(state.saving))} %`;
  byId("answer").textContent = sentence();
  drawText();
  drawTables();
}

controls();
buildText();
window.addEventListener("hashchange", () => { state = fromFragment(); render(); });
render();
