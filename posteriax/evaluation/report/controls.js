
// What changes the whole page: which posteriors are shown, light and dark, its width.

function toggle(method, on) {
  faint.delete(method);
  if (on) switchedOff.delete(method);
  else switchedOff.add(method);
  draw();
}

data.methods.forEach((name, method) => {
  const label = document.createElement("label"), box = document.createElement("input");
  box.type = "checkbox";
  box.checked = !faint.has(method);
  box.indeterminate = faint.has(method);  // the first click shows it in full, the second hides it
  box.addEventListener("change", () => toggle(method, box.checked));
  const sign = svgElement("svg", { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" });
  svgElement("path", { class: "point", d: marker(method, 8, 8, 5) }, sign);
  const words = document.createElement("span");
  words.textContent = words.title = name;
  label.className = `m${method}`;
  label.append(box, sign, words);
  byId("legend").append(label);
});
for (const swatch of document.querySelectorAll(".swatch")) swatch.classList.add(`m${swatch.dataset.method}`);
byId("legend").hidden = !charts.length;
byId("faint-hint").hidden = !faint.size;
byId("example-section").hidden = !byId("examples").children.length && !byId("disagreeing").children.length;
byId("sort-hint").hidden = false;

// -- light and dark

const darkByDefault = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement, themeButton = byId("theme");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkByDefault.matches);
const nameTheme = () => { themeButton.textContent = isDark() ? "Light" : "Dark"; };
themeButton.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
darkByDefault.addEventListener("change", nameTheme);
themeButton.hidden = false;
nameTheme();

// -- drawing

function draw() {
  tooltip.hidden = true;
  for (const chart of charts) chart();
}

let drawnWidth = 0;
function drawIfResized() {
  if (byId("charts").clientWidth === drawnWidth) return;
  drawnWidth = byId("charts").clientWidth;
  draw();
  markCutTables();
}
drawIfResized();  // now, for whoever takes a picture or prints before the next frame
addEventListener("beforeprint", drawIfResized);
// in the next frame: charts drawn within the observer's own call would resize what it observes, which is an error
new ResizeObserver(() => requestAnimationFrame(drawIfResized)).observe(byId("charts"));
