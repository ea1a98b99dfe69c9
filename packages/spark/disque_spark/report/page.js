"use strict";
// Draws the plots, and makes the page interactive: zoom, values under the mouse, plots of single
// queues, histories of jobs, a filter, the reader's times and colours. The data is in the element
// "data"; nothing is loaded.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  root.classList.add("js");
  const byId = (id) => document.getElementById(id);
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const template = document.createElement("template");
  template.innerHTML = "<svg></svg>";
  const SVG = template.content.firstChild.namespaceURI;

  // ---- words ------------------------------------------------------------------------------

  let local = true;
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

  // ---- lines: a point is a time and a value, or null where there is a gap -------------------

  const placed = (rows, step) => rows.map(([at, ...values]) => [data.origin + at * step, ...values]);
  const { peaks, series } = data;
  for (const name of ["rates", "wait", "processing"]) data[name] = placed(data[name], data.step);
  data.depth = data.depth.map(([queue, rows]) => [queue, placed(rows, data.step)]);
  peaks.rates = placed(peaks.rates, peaks.step);
  series.queues = new Map(series.queues.map(([queue, rows]) => [queue, placed(rows, series.step)]));
  const whole = data.first < data.last ? [data.first, data.last] : [data.first - 30000, data.last + 30000];
  let view = whole;
  let chosen = null;  // the queue whose plots are shown

  function filled(rows, place, step) {
    const points = [];
    for (const row of rows) {
      const last = points.length ? points[points.length - 1][0] : row[0];
      if (row[0] - last > step) points.push([last + step, 0]);
      if (row[0] - last > 2 * step) points.push([row[0] - step, 0]);
      points.push([row[0], (row[place] ?? 0) * 1000 / step]);
    }
    return points;
  }

  function broken(rows, place, step) {
    const points = [];
    for (const row of rows) {
      if ((row[place] ?? null) === null) continue;
      const last = points.length ? points[points.length - 1][0] : row[0];
      if (row[0] - last > 3 * step) points.push([row[0] - step, null]);
      points.push([row[0], Math.max(row[place], 1)]);
    }
    return points;
  }

  // A depth stays until something happens; when in its step it was reached is not known.
  function stepped(rows, place, step) {
    const points = [];
    for (const row of rows) {
      if ((row[place] ?? null) === null) continue;
      if (!points.length) points.push([Math.max(row[0], data.first), 0]);
      else if (row[0] > points[points.length - 1][0]) points.push([row[0], points[points.length - 1][1]]);
      points.push([Math.min(row[0] + step, data.last), row[place]]);
    }
    if (points.length && data.last > points[points.length - 1][0]) points.push([data.last, points[points.length - 1][1]]);
    return points;
  }

  const isFine = () => chosen === null
    && peaks.windows.some(([start, end]) => start <= view[0] && view[1] <= end);

  function linesOf(plot) {
    const make = { rates: filled, times: broken, depth: stepped }[plot.kind];
    if (chosen === null && plot.kind === "depth") {
      return data.depth.map(([name, rows]) => ({ name, points: stepped(rows, 1, data.step) }));
    }
    let [rows, step, columns] = [series.queues.get(chosen), series.step, series.columns];
    if (chosen === null) {
      const fine = plot.kind === "rates" && isFine();
      [rows, step] = fine ? [peaks.rates, peaks.step] : [data[plot.source], data.step];
      columns = plot.kind === "rates" ? series.columns : plot.columns;
    }
    return plot.columns.map((column, place) => ({
      name: plot.kind === "depth" ? chosen : plot.names[place],
      points: make(rows, columns.indexOf(column) + 1, step),
    }));
  }

  // ---- plots ------------------------------------------------------------------------------

  const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM, NAMES] = [220, 56, 10, 12, 26, 90];
  const ROUND_MS = [1, 10, 100, 1000, 1e4, 6e4, 6e5, 36e5, 36e6, 864e6];
  const STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400].map((s) => s * 1000);

  function element(name, attributes, parent, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  }

  function ticksOf(plot, values) {
    const most = Math.max(0, ...values);
    if (plot.log) {
      const least = Math.min(...values);
      const low = Math.min(Math.max(ROUND_MS.findLastIndex((value) => value <= least), 0), ROUND_MS.length - 2);
      const above = ROUND_MS.findIndex((value) => value >= most);
      return ROUND_MS.slice(low, Math.max(above < 0 ? ROUND_MS.length - 1 : above, low + 1) + 1);
    }
    const raw = (most || 1) / 4;
    const power = 10 ** Math.floor(Math.log10(raw));
    let step = [1, 2, 5, 10].map((by) => by * power).find((size) => size >= raw * 0.999);
    if (plot.kind === "depth") step = Math.max(step, 1);
    return Array.from({ length: Math.ceil((most || 1) / step - 1e-9) + 1 }, (_, place) => step * place);
  }

  // The times to write below a plot, and their format.
  function moments(room) {
    const span = view[1] - view[0];
    const most = room / (span < 864e5 ? 66 : 88);
    const step = STEPS.find((size) => span / size <= most) ?? Math.ceil(span / most / 864e5) * 864e5;
    const format = step >= 864e5 ? "%m-%d" : step < 60000 ? "%H:%M:%S" : span < 864e5 ? "%H:%M" : "%m-%d %H:%M";
    const apart = local ? -60000 * new Date(view[0]).getTimezoneOffset() : 0;
    const found = [];
    for (let at = Math.ceil((view[0] + apart) / step) * step - apart; at <= view[1]; at += step) found.push(at);
    return [found, format];
  }

  // An empty picture as wide as its place, with the axis of time.
  function canvas(figure, title, height, left = LEFT) {
    figure.querySelector("svg")?.remove();
    const width = Math.max(figure.clientWidth, 260);
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": title });
    figure.prepend(svg);
    const x = (at) => left + (at - view[0]) / (view[1] - view[0]) * (width - left - RIGHT);
    const [times, format] = moments(width - left - RIGHT);
    for (const at of times) {
      const near = x(at) > width - 34;
      element("text", { x: near ? width : x(at), y: height - 6, "text-anchor": near ? "end" : "middle" }, svg, moment(at, format));
    }
    const inside = element("svg", { class: "inside", x: left, y: 0, width: width - left - RIGHT, height: height - BOTTOM + 3 }, svg);
    return { svg, inside, width, x };
  }

  function draw(figure, plot) {
    const lines = linesOf(plot);
    const { svg, inside, width, x } = canvas(figure, chosen === null ? plot.title : `${plot.title}, queue ${chosen}`, HEIGHT);
    for (const line of lines) {
      const last = line.points.findIndex(([at]) => at > view[1]);
      const first = line.points.findLastIndex(([at]) => at < view[0]);
      line.points = line.points.slice(Math.max(first, 0), last < 0 ? undefined : last + 1);
    }
    const values = lines.flatMap((line) => line.points)
      .filter(([at, value]) => value !== null && view[0] <= at && at <= view[1]).map((point) => point[1]);
    const ticks = ticksOf(plot, values.length ? values : [1]);
    const [bottom, top] = [ticks[0], ticks[ticks.length - 1]];
    const share = (value) => plot.log ? Math.log(Math.max(value, bottom) / bottom) / Math.log(top / bottom) : value / top;
    const y = (value) => HEIGHT - BOTTOM - share(value) * (HEIGHT - TOP - BOTTOM);
    for (const tick of ticks) {
      element("line", { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick), class: "rule" }, svg);
      element("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, svg, plot.kind === "times" ? duration(tick) : short(tick));
    }
    svg.append(inside);
    lines.forEach((line, place) => {
      let path = "", before = null;
      const few = line.points.length <= 60;
      line.points.forEach(([at, value], index) => {
        if (value !== null) {
          // Lines at 0 are drawn one above the other.
          const spot = [(x(at) - LEFT).toFixed(1), (y(value) - 1.5 * place * !value).toFixed(1)];
          path += (before === null ? "M" : "L") + spot.join(" ");
          const alone = before === null && (line.points[index + 1]?.[1] ?? null) === null;
          if (few || alone) element("circle", { cx: spot[0], cy: spot[1], r: 2.2, class: `f${place % 6}` }, inside);
        }
        before = value;
      });
      element("path", { d: path, class: `line c${place % 6}` }, inside);
    });
    if (!values.length) element("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, svg, "nothing");
    figure.querySelector(".legend").replaceChildren(...lines.map((line, place) => {
      const item = document.createElement("span");
      element("path", { d: "M0 4H26", class: `line c${place % 6}` }, element("svg", { viewBox: "0 0 26 8" }, item));
      item.append(shortened(line.name, 40));
      return item;
    }));
    listen(figure, svg, plot, lines, x);
  }

  // Which queue was busy when: a row for each of the busiest, darker the more it delivered.
  function drawBusy(figure) {
    const place = series.columns.indexOf("delivered") + 1;
    const sum = ([, steps]) => steps.reduce((total, row) => total + (row[place] ?? 0), 0);
    const rows = [...series.queues].sort((a, b) => sum(b) - sum(a)).slice(0, 12);
    const { svg, inside, width, x } = canvas(figure, "deliveries of the busiest queues over time", rows.length * 20 + BOTTOM, NAMES);
    const size = Math.max(series.step, Math.ceil((view[1] - view[0]) / (width - NAMES) * 4 / series.step) * series.step);
    const cells = rows.map(([, steps]) => {
      const sums = new Map();
      for (const row of steps) {
        const at = Math.floor((row[0] - data.origin) / size) * size + data.origin;
        if (row[place] && at + size > view[0] && at < view[1]) sums.set(at, (sums.get(at) ?? 0) + row[place]);
      }
      return sums;
    });
    const most = Math.max(1, ...cells.flatMap((sums) => [...sums.values()]));
    rows.forEach(([queue], row) => {
      const name = element("text", { x: NAMES - 6, y: row * 20 + 13, "text-anchor": "end" }, svg, shortened(queue || "?", 12));
      element("title", {}, name, shortened(queue, 60));
      for (const [at, count] of cells[row]) {
        const cell = element("rect", {
          x: (x(at) - NAMES).toFixed(1), y: row * 20, width: Math.max(x(at + size) - x(at) - 0.5, 1).toFixed(1),
          height: 17, class: "f0", "fill-opacity": (0.1 + 0.9 * Math.sqrt(count / most)).toFixed(2),
        }, inside);
        element("title", {}, cell, `${shortened(queue, 60)}, ${moment(at)}: ${number(count)} deliveries in ${duration(size)}`);
      }
    });
    listen(figure, svg, null, [], x, NAMES);
  }

  // Values and zoom, by mouse, finger and keys.
  function listen(figure, svg, plot, lines, x, left = LEFT) {
    const times = [...new Set(lines.flatMap((line) => line.points.map(([at]) => at)))]
      .filter((at) => view[0] <= at && at <= view[1]).sort((a, b) => a - b);
    const mark = element("rect", { y: 0, height: "100%", width: 0, class: "chosen" }, svg);
    const cursor = element("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor gone" }, svg);
    const readout = figure.querySelector(".readout");
    let place = -1, from = null;
    const timeAt = (event) => {
      const box = svg.getBoundingClientRect();
      const share = (event.clientX - box.left - left) / (box.width - left - RIGHT);
      return view[0] + Math.max(0, Math.min(1, share)) * (view[1] - view[0]);
    };
    const show = (to) => {
      if (!times.length) return;
      place = Math.max(0, Math.min(times.length - 1, to));
      const at = times[place];
      cursor.setAttribute("x1", x(at)); cursor.setAttribute("x2", x(at));
      cursor.classList.remove("gone");
      const values = lines.map((line) => {
        let value = line.points.find((point) => point[0] === at)?.[1];
        if (value === undefined && plot.kind === "depth") value = line.points.findLast((point) => point[0] <= at)?.[1];
        return (value ?? null) === null ? null
          : `${shortened(line.name, 40)} ${plot.kind === "times" ? duration(value) : number(value)}${plot.unit}`;
      });
      readout.textContent = `${moment(at)}: ${values.filter(Boolean).join(", ") || "nothing"}`;
    };
    const hide = () => { cursor.classList.add("gone"); readout.textContent = ""; place = -1; };
    svg.onpointerdown = (event) => { if (!event.button) from = timeAt(event); };
    svg.onpointermove = (event) => {
      const at = timeAt(event);
      if (from !== null) {
        mark.setAttribute("x", x(Math.min(from, at)));
        mark.setAttribute("width", Math.abs(x(at) - x(from)));
        return;
      }
      let best = 0;
      times.forEach((time, index) => { if (Math.abs(time - at) < Math.abs(times[best] - at)) best = index; });
      show(best);
    };
    svg.onpointerup = (event) => {
      const at = timeAt(event);
      const wide = from !== null && Math.abs(x(at) - x(from)) > 8;
      const [start, end] = [Math.min(from, at), Math.max(from, at)];
      from = null;
      if (wide) look(start, end);
    };
    svg.onpointercancel = () => { from = null; mark.setAttribute("width", 0); };
    svg.onpointerleave = () => { hide(); if (from === null) mark.setAttribute("width", 0); };
    svg.ondblclick = () => look(...whole);
    svg.onblur = hide;
    svg.onkeydown = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
      const act = { "+": "in", "=": "in", "-": "out", 0: "whole", "<": "earlier", ">": "later" }[event.key];
      if (by !== undefined) { event.preventDefault(); show(place < 0 && by < 0 && by > -1e9 ? times.length - 1 : place + by); }
      if (act && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        zoom(act, place < 0 ? undefined : times[place]);
        figure.querySelector("svg").focus({ preventScroll: true });
      }
      if (event.key === "Escape") hide();
    };
  }

  // ---- the period and the queue that the plots show -----------------------------------------

  function look(start, end) {
    const least = Math.min(10000, whole[1] - whole[0]);
    const span = Math.min(Math.max(end - start, least), whole[1] - whole[0]);
    const middle = Math.max(whole[0] + span / 2, Math.min(whole[1] - span / 2, (start + end) / 2));
    view = span === whole[1] - whole[0] ? whole : [middle - span / 2, middle + span / 2];
    drawAll();
  }

  function zoom(act, about = (view[0] + view[1]) / 2) {
    const span = view[1] - view[0];
    if (act === "whole") look(...whole);
    if (act === "in") look(about - span / 6, about + span / 6);
    if (act === "out") look(view[0] - span, view[1] + span);
    if (act === "earlier") look(view[0] - span / 2, view[1] - span / 2);
    if (act === "later") look(view[0] + span / 2, view[1] + span / 2);
    if (act === "busiest") {
      const busy = peaks.windows.length ? peaks.rates : data.rates;
      const step = peaks.windows.length ? peaks.step : data.step;
      const top = busy.reduce((best, row) => (row[1] + row[2] > best[1] + best[2] ? row : best), [data.first, 0, 0]);
      const window = peaks.windows.find(([start, end]) => start <= top[0] && top[0] < end);
      look(...(window ?? [top[0] - 30 * step, top[0] + 30 * step]));
    }
  }

  function drawAll() {
    if (!data.plots.length) return;
    for (const plot of data.plots) draw(byId(`plot-${plot.id}`), plot);
    if (byId("plot-busy")) drawBusy(byId("plot-busy"));
    for (const place of all(".whose")) place.textContent = chosen === null ? "all queues" : `queue ${chosen}`;
    const detail = isFine() && view !== whole ? ", second by second" : "";
    byId("period").textContent = view === whole ? "the whole period"
      : `${moment(view[0])} to ${moment(view[1])} (${duration(view[1] - view[0])}${detail})`;
    for (const button of all("[data-zoom]")) {
      button.disabled = view === whole && ["out", "whole", "earlier", "later"].includes(button.dataset.zoom);
    }
  }

  const names = [...series.queues.keys()];
  function choose(queue) {
    chosen = queue;
    byId("queue").value = queue === null ? "" : String(names.indexOf(queue));
    drawAll();
  }

  names.forEach((queue, place) => {
    const option = document.createElement("option");
    option.value = String(place);
    option.textContent = shortened(queue, 60) || "?";
    byId("queue").append(option);
  });
  byId("queue").addEventListener("change", ({ target }) => choose(target.value === "" ? null : names[Number(target.value)]));
  for (const button of all("[data-zoom]")) button.addEventListener("click", () => zoom(button.dataset.zoom));
  for (const cell of all("[data-queue]")) {
    const button = document.createElement("button");
    button.className = "q";
    button.type = "button";
    button.append(...cell.childNodes);
    button.title = "show the plots of this queue";
    button.addEventListener("click", () => { choose(names[Number(cell.dataset.queue)]); byId("over-time").scrollIntoView(); });
    cell.append(button);
  }

  // ---- the history of a job ---------------------------------------------------------------

  function life(details) {
    const id = details.querySelector("code").textContent;
    if (details.querySelector("svg")) return;
    const [start, count, steps] = data.lives[id];
    const lanes = [...new Set(steps.map(([, node]) => node))];
    const [row, left, apart] = [18, 86, 18];
    const width = Math.min(640, Math.max(details.clientWidth, 300));
    const svg = element("svg", {
      viewBox: `0 0 ${width} ${row * (steps.length + 1) + 8}`, class: "life", role: "img", "aria-label": `history of job ${id}`,
    }, details);
    element("text", { x: 0, y: 12, class: "dim", "data-t": start }, svg, moment(start));
    const x = (node) => left + lanes.indexOf(node) * apart;
    const y = (place) => row * (place + 1) + 10;
    for (const node of lanes) {
      element("line", { x1: x(node), x2: x(node), y1: y(0), y2: y(steps.length - 1), class: "lane" }, svg);
    }
    element("path", { class: "way", d: steps.map(([, node], place) => `${place ? "L" : "M"}${x(node)} ${y(place)}`).join("") }, svg);
    const colours = { delivered: 0, queued: 1, acked: 2, dead: 3, expired: 3, evicted: 3, nacked: 4 };
    let before = 0;
    steps.forEach(([ms, node, what], place) => {
      const [kind, reason] = what.split(":");
      element("text", { x: left - 12, y: y(place) + 4, "text-anchor": "end", class: "dim" }, svg, place ? `+${duration(ms - before)}` : "");
      element("circle", { cx: x(node), cy: y(place), r: 4.5, class: `f${colours[kind] ?? 5}` }, svg);
      const words = `${kind}${reason ? ` (${reason})` : ""} on ${data.nodes[node]}`;
      element("text", { x: left + lanes.length * apart, y: y(place) + 4 }, svg, words);
      before = ms;
    });
    if (count > steps.length) {
      const note = document.createElement("p");
      note.className = "hint";
      note.textContent = `${count - steps.length} steps in the middle are left out.`;
      details.append(note);
    }
  }
  for (const code of all("code[data-job]")) {
    const details = document.createElement("details");
    code.replaceWith(details);
    const summary = document.createElement("summary");
    summary.append(code);
    details.append(summary);
    details.addEventListener("toggle", () => { if (details.open) life(details); });
  }

  // A link to what is behind a click opens it.
  document.addEventListener("click", ({ target }) => {
    const place = target.closest("a[href^='#']") && byId(target.closest("a").hash.slice(1));
    for (let at = place?.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  });

  // ---- filter, times, colours ----------------------------------------------------------------

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
      for (const details of all("details.more")) details.open = all("tbody tr:not(.gone)", details).length > 0;
    }
    byId("hits").textContent = wanted ? `${shown} matching ${shown === 1 ? "row" : "rows"} on this page` : "";
  });

  function showTimes() {
    const zone = local ? Intl.DateTimeFormat().resolvedOptions().timeZone : "UTC";
    for (const place of all(".zone")) place.textContent = zone;
    for (const text of all("[data-t]")) text.textContent = moment(Number(text.dataset.t), text.dataset.f || undefined);
    byId("zone").textContent = local ? "show UTC" : "show local times";
    document.title = `${document.querySelector("h1").textContent} ${zone}`;
    drawAll();
  }
  byId("zone").addEventListener("click", () => { local = !local; showTimes(); });
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  let width = root.clientWidth;
  addEventListener("resize", () => { if (root.clientWidth !== width) { width = root.clientWidth; drawAll(); } });
  showTimes();
})();
