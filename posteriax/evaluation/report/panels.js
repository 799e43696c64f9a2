
// Charts of several small panels: histograms of uncertainty, and the effects of columns.

// One small panel for each posterior: filled, the bins of the inside; as a line, those of the outside.
function histogramPanels(box, { edges, inside, outside, label, nameOf, insideName, outsideName }) {
  const bins = edges.length - 1;
  const highest = Math.max(0.01, ...[...inside, ...outside].flatMap((line) => line.points.map(([share]) => share)));
  const made = [];
  for (const { method, points } of inside) {
    const panel = document.createElement("div");
    box.append(panel);
    const width = Math.max(140, Math.min(panel.clientWidth, 420)), height = width < 200 ? 150 : 190;
    const percent = (value) => `${Math.round(100 * value)} %`;
    const { svg, toX, toY } = frame(panel, {
      width, height, label: `Histogram for ${nameOf(method)}`,
      x: { label, range: [edges[0], edges[bins]], ticks: ticksBetween(edges[0], edges[bins], width < 200 ? 2 : 4) },
      y: { range: [0, highest * (width < 200 ? 1.35 : 1.12)], ticks: { values: ticksBetween(0, highest, 4).values, format: percent } },
    });
    const stairs = (shares) => shares.map(([share], i) => `V${toY(share)}H${toX(edges[i + 1])}`).join("");
    const start = `M${toX(edges[0])} ${toY(0)}`;
    svgElement("path", { class: `inside m${method}`, d: `${start}${stairs(points)}V${toY(0)}Z` }, svg);
    const other = outside.find((line) => line.method === method);
    if (other) svgElement("path", { class: "outside", d: `${start}${stairs(other.points)}V${toY(0)}` }, svg);
    const name = nameOf(method), most = Math.floor((width - 18) / 8.5);
    svgText(svg, width - 14, 16, name.length > most ? `${name.slice(0, most)}…` : name,
      { "text-anchor": "end", class: "name" });
    const spots = points.map(([share], i) => {
      const upTo = i === bins - 1 ? "and above" : `to ${short(edges[i + 1])}`;
      const lines = [`${name}: ${short(edges[i])} ${upTo}`, `${insideName}: ${(100 * share).toFixed(1)} %`];
      if (other) lines.push(`${outsideName}: ${(100 * other.points[i][0]).toFixed(1)} %`);
      return { left: (toX(edges[i]) + toX(edges[i + 1])) / 2, top: toY(share), text: lines.join("\n") };
    });
    made.push({ svg, spots });
  }
  return made;
}

// One panel for each column: the mean prediction, its credible band, and the interval of the target; or the uncertainty.
function effectPanels(box, { columns, method, output, showUncertainty, label }) {
  const ends = columns.flatMap((column) => (showUncertainty ? column.uncertainty : column.mean.flatMap((row, i) => (
    [column.low[i][output], column.high[i][output], column.interval_low[i]?.[output], column.interval_high[i]?.[output]]
  )))).filter((value) => value !== undefined);
  const range = rangeOf(ends, 0.04), made = [];
  for (const column of columns) {
    const panel = document.createElement("div");
    box.append(panel);
    const draw = column.levels.length ? barPanel : curvePanel;
    made.push(draw(panel, { column, method, output, showUncertainty, label, range }));
  }
  return made;
}

const effectText = ({ column, output, showUncertainty, label }, i) => {
  const at = column.levels.length ? column.levels[i] : short(column.values[i]);
  if (showUncertainty) return `${column.name} = ${at}: ${label} ${short(column.uncertainty[i])}`;
  const lines = [`${column.name} = ${at}: ${short(column.mean[i][output])}`,
    `90 % band of the mean: ${short(column.low[i][output])} to ${short(column.high[i][output])}`];
  const low = column.interval_low[i]?.[output];
  if (low !== undefined) lines.push(`90 % interval: ${short(low)} to ${short(column.interval_high[i][output])}`);
  return lines.join("\n");
};

function curvePanel(panel, facts) {
  const { column, method, output, showUncertainty, label, range } = facts;
  const width = Math.max(200, Math.min(panel.clientWidth, 460)), height = 230, { values } = column;
  const [first, last] = [values[0], values[values.length - 1]];
  const margin = last > first ? 0.02 * (last - first) : 1;
  const { svg, toX, toY } = frame(panel, {
    width, height, left: 54, label: `${label} by ${column.name}`,
    x: { label: column.name, range: [first - margin, last + margin] }, y: { label, range },
  });
  const at = (row) => (Array.isArray(row) ? row[output] : row);
  const points = (rows) => rows.map((row, i) => `${toX(values[i]).toFixed(1)} ${toY(at(row)).toFixed(1)}`);
  const band = (low, high, kind) => {
    if (!low.length || at(low[0]) === undefined) return;
    const d = `M${[...points(low), ...points(high).reverse()].join("L")}Z`;
    svgElement("path", { class: `${kind} m${method}`, d }, svg);
  };
  if (!showUncertainty) {
    band(column.interval_low, column.interval_high, "interval");
    band(column.low, column.high, "band");
  }
  const line = showUncertainty ? column.uncertainty : column.mean;
  svgElement("path", { class: `line m${method}`, d: `M${points(line).join("L")}` }, svg);
  const bottom = toY(range[0]);
  for (const place of column.observed) {
    if (place >= first && place <= last) svgElement("path", { class: "rug", d: `M${toX(place)} ${bottom}v-7` }, svg);
  }
  const spots = line.map((row, i) => ({ left: toX(values[i]), top: toY(at(row)), text: effectText(facts, i) }));
  return { svg, spots };
}

function barPanel(panel, facts) {
  const { column, method, output, showUncertainty, label, range } = facts;
  const width = Math.max(200, Math.min(panel.clientWidth, 460)), height = 230, count = column.levels.length;
  const most = Math.max(3, Math.floor((width - 70) / count / 6.5));
  const cut = (name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
  const every = Math.max(1, Math.ceil((count * 28) / (width - 70)));
  const { svg, toX, toY } = frame(panel, {
    width, height, left: 54, label: `${label} by ${column.name}`, y: { label, range },
    x: { label: column.name, range: [-0.6, count - 0.4],
      ticks: { values: column.levels.map((_, i) => i).filter((i) => i % every === 0), format: (i) => cut(column.levels[i]) } },
  });
  const half = Math.min(24, (toX(1) - toX(0)) * 0.36), spots = [];
  column.levels.forEach((_, i) => {
    const value = showUncertainty ? column.uncertainty[i] : column.mean[i][output], left = toX(i), top = toY(value);
    const d = `M${left - half} ${toY(range[0])}V${top}H${left + half}V${toY(range[0])}Z`;
    svgElement("path", { class: `bar m${method}`, d }, svg);
    if (!showUncertainty) {
      const error = `M${left} ${toY(column.low[i][output])}V${toY(column.high[i][output])}`;
      svgElement("path", { class: `error m${method}`, d: error }, svg);
    }
    const share = column.observed[i];
    const note = share === undefined || share === null ? "" : `\n${(100 * share).toFixed(1)} % of the rows`;
    spots.push({ left, top, text: effectText(facts, i) + note });
  });
  return { svg, spots };
}
