"use strict";
// Makes the page interactive: values under the mouse, plots of single queues, histories of jobs,
// filters, local time, colours. The data is in the element "data"; nothing is loaded.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  root.classList.add("js");
  const byId = (id) => document.getElementById(id);
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const SVG = document.querySelector("svg")?.namespaceURI;
  const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [760, 230, 64, 16, 12, 34];

  // ---- words ------------------------------------------------------------------------------

  let local = false;
  const two = (number) => String(number).padStart(2, "0");

  function moment(ms, format = "%Y-%m-%d %H:%M:%S") {
    const at = new Date(ms);
    const get = (name) => at[`get${local ? "" : "UTC"}${name}`]();
    const parts = {
      Y: get("FullYear"), m: two(get("Month") + 1), d: two(get("Date")),
      H: two(get("Hours")), M: two(get("Minutes")), S: two(get("Seconds")),
    };
    return format.replace(/%(\w)/g, (_, key) => parts[key]);
  }

  // Numbers and durations, as disque_trio/humanize.py writes them.
  function number(value) {
    if (value && Math.abs(value) < 10 && value % 1) return String(+value.toPrecision(2));
    return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");
  }

  const decimal = (value) => value.toFixed(value < 99.95 ? 1 : 0).replace(/\.0$/, "");

  function short(value) {
    if (value < 9999.5) return number(value);
    if (value < 999500) return `${decimal(value / 1000)}k`;
    return value < 999500000 ? `${decimal(value / 1e6)}M` : `${decimal(value / 1e9)}G`;
  }

  function duration(ms) {
    if (ms <= 0) return "0 s";
    if (ms < 0.9995) return `${Math.round(ms * 1000)} µs`;
    if (ms < 999.5) return `${Math.round(ms)} ms`;
    if (ms < 10000) return `${decimal(ms / 1000)} s`;
    const seconds = Math.floor(ms / 1000);
    const parts = (large, name, small, other) => {
      const rest = Math.floor(seconds % large / small);
      return `${Math.floor(seconds / large)} ${name}${rest ? ` ${rest} ${other}` : ""}`;
    };
    if (seconds < 120) return `${seconds} s`;
    if (seconds < 600) return parts(60, "min", 1, "s");
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    return seconds < 172800 ? parts(3600, "h", 60, "min") : parts(86400, "d", 3600, "h");
  }

  const shortened = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

  // ---- plots ------------------------------------------------------------------------------

  function element(name, attributes, parent, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  }

  const ROUND_MS = [1, 10, 100, 1000, 1e4, 6e4, 6e5, 36e5, 36e6, 864e6];
  const STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400];

  function scale(plot) {
    const points = plot.lines.flatMap((line) => line.points).filter((point) => point[1] !== null);
    let first = plot.span[0], last = plot.span[1], most = 0, least = Infinity;
    for (const [at, value] of points) {
      first = Math.min(first, at); last = Math.max(last, at);
      most = Math.max(most, value); least = Math.min(least, value);
    }
    if (first === last) { first -= 30000; last += 30000; }
    let ticks = [];
    if (plot.log) {
      let low = 0;
      ROUND_MS.forEach((value, place) => { if (value <= least) low = place; });
      low = Math.min(low, ROUND_MS.length - 2);
      const above = ROUND_MS.findIndex((value) => value >= most);
      const high = above < 0 ? ROUND_MS.length - 1 : above;
      ticks = ROUND_MS.slice(low, Math.max(high, low + 1) + 1);
    } else {
      const raw = (most || 1) / 4;
      const power = 10 ** Math.floor(Math.log10(raw));
      let step = [1, 2, 5, 10].map((by) => by * power).find((size) => size >= raw * 0.999);
      if (plot.whole) step = Math.max(step, 1);
      const count = Math.ceil((most || 1) / step - 1e-9);
      ticks = Array.from({ length: count + 1 }, (_, place) => step * place);
    }
    const [bottom, top] = [ticks[0], ticks[ticks.length - 1]];
    const share = (value) => plot.log
      ? Math.log(Math.max(value, bottom) / bottom) / Math.log(top / bottom) : value / top;
    return {
      first, last, ticks, empty: !points.length,
      x: (at) => LEFT + ((at - first) / (last - first)) * (WIDTH - LEFT - RIGHT),
      y: (value) => HEIGHT - BOTTOM - share(value) * (HEIGHT - TOP - BOTTOM),
    };
  }

  function moments(first, last) {
    const span = (last - first) / 1000;
    const most = span < 86400 ? 8 : 6;
    const step = STEPS.find((size) => span / size <= most) ?? Math.ceil(span / most / 86400) * 86400;
    const format = step >= 86400 ? "%m-%d" : step < 60 ? "%H:%M:%S"
      : span < 86400 ? "%H:%M" : "%m-%d %H:%M";
    const found = [];
    for (let at = Math.ceil(first / step / 1000) * step * 1000; at <= last; at += step * 1000) {
      found.push([at, format]);
    }
    return found;
  }

  function draw(figure, plot) {
    const svg = figure.querySelector("svg") ?? element("svg", {}, figure);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", plot.title);
    const sizes = scale(plot);
    for (const tick of sizes.ticks) {
      const y = sizes.y(tick);
      element("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y, class: "rule" }, svg);
      const label = plot.times ? duration(tick) : short(tick);
      element("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, svg, label);
    }
    for (const [at, format] of moments(sizes.first, sizes.last)) {
      const near = sizes.x(at) > WIDTH - RIGHT - 30;
      element("text", {
        x: near ? WIDTH : sizes.x(at), y: HEIGHT - BOTTOM + 22,
        "text-anchor": near ? "end" : "middle", "data-t": at, "data-f": format,
      }, svg, moment(at, format));
    }
    plot.lines.forEach((line, place) => {
      let path = "", before = null;
      const few = line.points.length <= 60;
      line.points.forEach(([at, value], index) => {
        if (value !== null) {
          const [x, y] = [sizes.x(at).toFixed(1), (sizes.y(value) - 1.5 * place * !value).toFixed(1)];
          path += `${before === null ? "M" : "L"}${x} ${y}`;
          const after = line.points[index + 1]?.[1] ?? null;
          if (few || (before === null && after === null)) {
            element("circle", { cx: x, cy: y, r: 2.2, class: `f${place % 6}` }, svg);
          }
        }
        before = value;
      });
      element("path", { d: path, class: `line c${place % 6}` }, svg);
    });
    if (sizes.empty) element("text", { x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle" }, svg, "nothing");
    const legend = figure.querySelector(".legend");
    legend?.replaceChildren(...plot.lines.map((line, place) => {
      const item = document.createElement("span");
      const key = element("svg", { viewBox: "0 0 26 8" }, item);
      element("path", { d: "M0 4H26", class: `line c${place % 6}` }, key);
      item.append(shortened(line.name, 40));
      return item;
    }));
    listen(figure, svg, plot, sizes);
  }

  function listen(figure, svg, plot, sizes) {
    const times = [...new Set(plot.lines.flatMap((line) => line.points.map(([at]) => at)))].sort((a, b) => a - b);
    const cursor = element("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor gone" }, svg);
    const readout = figure.querySelector(".readout");
    let place = -1;
    const show = (to) => {
      if (!times.length) return;
      place = Math.max(0, Math.min(times.length - 1, to));
      const at = times[place], x = sizes.x(at);
      cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
      cursor.classList.remove("gone");
      const values = plot.lines.map((line) => {
        let value = line.points.find((point) => point[0] === at)?.[1];
        if (value === undefined && plot.held) value = line.points.findLast((point) => point[0] <= at)?.[1];
        return value === undefined || value === null ? null
          : `${shortened(line.name, 40)} ${plot.times ? duration(value) : number(value)}${plot.unit ?? ""}`;
      });
      readout.textContent = `${moment(at)}: ${values.filter(Boolean).join(", ") || "nothing"}`;
    };
    const hide = () => { cursor.classList.add("gone"); readout.textContent = ""; place = -1; };
    svg.setAttribute("tabindex", "0");
    svg.onpointermove = (event) => {
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * WIDTH;
      let best = 0;
      times.forEach((time, index) => {
        if (Math.abs(sizes.x(time) - at) < Math.abs(sizes.x(times[best]) - at)) best = index;
      });
      show(best);
    };
    svg.onpointerleave = hide;
    svg.onblur = hide;
    svg.onkeydown = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
      if (by !== undefined) { event.preventDefault(); show(place < 0 && by < 0 && by > -1e9 ? times.length - 1 : place + by); }
      if (event.key === "Escape") hide();
    };
  }

  // ---- one queue --------------------------------------------------------------------------

  const columns = new Map(data.series.columns.map((name, place) => [name, place + 1]));
  let chosen = null;

  function filled(rows, name, by) {
    const points = [], step = data.step, place = columns.get(name);
    for (const row of rows) {
      const last = points.length ? points[points.length - 1][0] : row[0];
      if (row[0] - last > step) points.push([last + step, 0]);
      if (row[0] - last > 2 * step) points.push([row[0] - step, 0]);
      points.push([row[0], (row[place] ?? 0) / by]);
    }
    return points;
  }

  function broken(rows, name) {
    const points = [], place = columns.get(name);
    for (const row of rows) {
      if (row[place] === null || row[place] === undefined) continue;
      const last = points.length ? points[points.length - 1][0] : row[0];
      if (row[0] - last > 3 * data.step) points.push([row[0] - data.step, null]);
      points.push([row[0], Math.max(row[place], 1)]);
    }
    return points;
  }

  function stepped(rows) {
    const points = [], place = columns.get("depth"), [first, last] = data.span;
    for (const row of rows) {
      if (row[place] === null || row[place] === undefined) continue;
      if (!points.length) points.push([Math.max(row[0], first), 0]);
      else if (row[0] > points[points.length - 1][0]) points.push([row[0], points[points.length - 1][1]]);
      points.push([Math.min(row[0] + data.step, last), row[place]]);
    }
    if (points.length && last > points[points.length - 1][0]) points.push([last, points[points.length - 1][1]]);
    return points;
  }

  function ofQueue(plot, rows) {
    const seconds = data.step / 1000;
    const make = {
      rates: (name) => filled(rows, name, seconds),
      trouble: (name) => filled(rows, name, seconds),
      wait: (name) => broken(rows, `wait_${name}`),
      processing: (name) => broken(rows, `processing_${name}`),
    }[plot.id];
    const lines = plot.id === "depth" ? [{ name: chosen, points: stepped(rows) }]
      : plot.lines.map((line) => ({ name: line.name, points: make(line.column ?? line.name) }));
    return { ...plot, title: `${plot.title}, queue ${chosen}`, lines };
  }

  function drawAll() {
    const rows = data.series.queues.get(chosen);
    for (const plot of data.plots) {
      const figure = byId(`plot-${plot.id}`);
      if (figure) draw(figure, rows ? ofQueue(plot, rows) : plot);
    }
    for (const place of all(".whose")) place.textContent = rows ? `queue ${chosen}` : "all queues";
  }

  function choose(queue) {
    chosen = queue;
    byId("queue").value = queue === null ? "" : String([...data.series.queues.keys()].indexOf(queue));
    drawAll();
  }

  data.series.queues = new Map(data.series.queues);
  [...data.series.queues.keys()].forEach((queue, place) => {
    const option = document.createElement("option");
    option.value = String(place);
    option.textContent = shortened(queue, 60) || "?";
    byId("queue").append(option);
  });
  byId("queue").addEventListener("change", (event) => {
    const place = event.target.value;
    choose(place === "" ? null : [...data.series.queues.keys()][Number(place)]);
  });
  for (const cell of all("[data-queue]")) {
    const queue = [...data.series.queues.keys()][Number(cell.dataset.queue)];
    const button = document.createElement("button");
    button.className = "q";
    button.type = "button";
    button.append(...cell.childNodes);
    button.title = "show the plots of this queue";
    button.addEventListener("click", () => { choose(queue); byId("over-time").scrollIntoView(); });
    cell.append(button);
  }

  // ---- the history of a job ---------------------------------------------------------------

  function life(details) {
    const id = details.querySelector("code").textContent;
    if (!Object.hasOwn(data.lives.jobs, id) || details.querySelector("svg")) return;
    const [start, count, ...flat] = data.lives.jobs[id];
    const steps = [];
    for (let place = 0; place < flat.length; place += 3) {
      steps.push([flat[place], flat[place + 1], data.lives.names[flat[place + 2]]]);
    }
    const lanes = [...new Set(steps.map(([, node]) => node))];
    const [row, left, apart] = [18, 150, 18];
    const height = row * (steps.length + 1) + 8;
    const svg = element("svg", {
      viewBox: `0 0 640 ${height}`, class: "life", role: "img",
      "aria-label": `history of job ${id}`,
    }, details);
    element("text", { x: 0, y: 12, class: "dim", "data-t": start, "data-f": "%Y-%m-%d %H:%M:%S" },
      svg, moment(start));
    const x = (node) => left + lanes.indexOf(node) * apart;
    const y = (place) => row * (place + 1) + 10;
    for (const node of lanes) {
      element("line", { x1: x(node), x2: x(node), y1: y(0), y2: y(steps.length - 1), class: "lane" }, svg);
    }
    element("path", {
      class: "way",
      d: steps.map(([, node], place) => `${place ? "L" : "M"}${x(node)} ${y(place)}`).join(""),
    }, svg);
    const colours = { delivered: 0, queued: 1, acked: 2, dead: 3, expired: 3, evicted: 3, nacked: 4 };
    let before = 0;
    steps.forEach(([ms, node, what], place) => {
      const [kind, reason] = what.split(":");
      const since = ms - before;
      const label = place ? `+${duration(since)}` : "";
      element("text", { x: left - 16, y: y(place) + 4, "text-anchor": "end", class: "dim" }, svg, label);
      element("circle", { cx: x(node), cy: y(place), r: 4.5, class: `f${colours[kind] ?? 5}` }, svg);
      const words = `${kind}${reason ? ` (${reason})` : ""} on ${data.nodes[node]}`;
      element("text", { x: left + lanes.length * apart, y: y(place) + 4 }, svg, words);
      before = ms;
    });
    for (const text of all("ol, p", details)) text.remove();
    if (count > steps.length) {
      const note = document.createElement("p");
      note.className = "hint";
      note.textContent = `${count - steps.length} steps in the middle are left out.`;
      details.append(note);
    }
  }
  document.addEventListener("toggle", (event) => {
    if (event.target.dataset?.job !== undefined && event.target.open) life(event.target);
  }, true);

  // ---- filters, time, colours ----------------------------------------------------------------

  byId("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    let shown = 0;
    for (const row of all("table.rows tbody tr")) {
      const fits = !wanted || row.textContent.toLowerCase().includes(wanted)
        || all("[title]", row).some((named) => named.title.toLowerCase().includes(wanted));
      row.classList.toggle("gone", !fits);
      shown += fits;
    }
    if (wanted) {
      for (const details of all("details.kind")) {
        details.open = all("tbody tr:not(.gone)", details).length > 0;
      }
    }
    byId("hits").textContent = wanted ? `${shown} matching rows on this page` : "";
  });
  byId("zone").addEventListener("click", (event) => {
    local = !local;
    event.target.textContent = local ? "show UTC" : "show local time";
    event.target.setAttribute("aria-pressed", String(local));
    for (const place of all(".zone")) {
      place.textContent = local ? Intl.DateTimeFormat().resolvedOptions().timeZone : "UTC";
    }
    for (const text of all("[data-t]")) {
      text.textContent = moment(Number(text.dataset.t), text.dataset.f || undefined);
    }
    drawAll();
  });
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  drawAll();
})();
