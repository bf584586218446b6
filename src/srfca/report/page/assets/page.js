"use strict";
// The script of the page: charts when they come into view, tables of clients, theme, views.
(() => {
  const root = document.documentElement;
  let page = JSON.parse(document.getElementById("page-data").textContent);
  const drawn = new Map(); // elements of charts that are drawn, with the width that they had

  // ---- theme ---------------------------------------------------------------------------------
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("srfca-theme"); } catch { return null; } };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches);
  if (stored()) root.dataset.theme = stored();

  function switchTheme() {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("srfca-theme", root.dataset.theme); } catch { /* not allowed here */ }
    redraw();
  }

  // ---- charts --------------------------------------------------------------------------------
  function adapt(part, width) {
    // Make legends and labels fit a narrow column.
    if (Array.isArray(part)) { part.forEach((item) => adapt(item, width)); return; }
    if (part === null || typeof part !== "object") return;
    if (part.columns && part.orient) part.columns = Math.max(2, Math.min(part.columns, Math.floor(width / 75)));
    if (part.labelLimit) part.labelLimit = Math.min(part.labelLimit, Math.floor(0.36 * width));
    if (part.gradientLength) part.gradientLength = Math.min(part.gradientLength, width - 60);
    for (const [key, value] of Object.entries(part)) if (key !== "datasets") adapt(value, width);
  }

  async function draw(element) {
    const chart = page.charts[element.dataset.chart];
    const width = element.clientWidth;
    if (!chart || !width) return;
    drawn.set(element, width);
    const spec = structuredClone(chart.spec);
    adapt(spec, width);
    spec.width = "container";
    spec.height = chart.square ? Math.round(0.96 * width) : chart.height;
    spec.config = page.themes[isDark() ? "dark" : "light"];
    try {
      const result = await vegaEmbed(element, spec, {
        renderer: chart.canvas ? "canvas" : "svg",
        actions: { export: true, source: false, compiled: false, editor: false },
        downloadFileName: element.dataset.chart,
        tooltip: { theme: "custom" },
      });
      element.style.minHeight = "";
      element.dataset.drawn = "yes";
      const old = views.get(element);
      if (old) old.finalize();
      views.set(element, result);
    } catch (error) {
      element.textContent = `This chart cannot be drawn: ${error.message}`;
      throw error;
    }
  }
  const views = new Map();

  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
    }
  }, { rootMargin: "400px" });

  function redraw() { for (const element of [...drawn.keys()]) if (element.isConnected) draw(element); }

  let timer;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      for (const [element, width] of [...drawn]) {
        const now = element.clientWidth;
        if (element.isConnected && now && Math.abs(now - width) > 30) draw(element);
      }
    }, 200);
  });
  addEventListener("beforeprint", () => {
    document.querySelectorAll(".view:not([hidden]) .chart").forEach((c) => { if (!drawn.has(c)) draw(c); });
  });

  // ---- numbers of a chart as a table -----------------------------------------------------------
  function showNumbers(details) {
    const holder = details.querySelector("[data-numbers]");
    if (!holder || holder.firstChild) return;
    const chart = page.charts[holder.dataset.numbers];
    const isTable = (data) => data.length && typeof data[0] === "object" && chart.fields.every((f) => f in data[0]);
    const lines = Object.values(chart.spec.datasets).find(isTable) || [];
    const table = make("table");
    const head = make("tr");
    chart.fields.forEach((field) => head.append(make("th", field, { scope: "col" })));
    const body = make("tbody");
    const seen = new Set();
    for (const line of lines) {
      const cells = chart.fields.map((field) => (typeof line[field] === "number" ? String(line[field]) : line[field] ?? "-"));
      const key = cells.join("\u0000");
      if (seen.has(key)) continue;
      seen.add(key);
      if (seen.size > 500) { holder.after(make("p", "The first 500 lines.", { class: "note" })); break; }
      const row = make("tr");
      cells.forEach((cell) => row.append(make("td", cell)));
      body.append(row);
    }
    const top = make("thead");
    top.append(head);
    table.append(top, body);
    holder.append(table);
  }

  // ---- tables of clients -----------------------------------------------------------------------
  function make(tag, text, attributes = {}) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  const signed = (text) => (Number(text) === 0 ? text.replace("-", "") : Number(text) > 0 ? `+${text}` : text);
  const FORMATS = {
    text: (value) => value,
    whole: (value) => (value === null || value < 0 ? "-" : value.toLocaleString("en")),
    percent: (value) => (value === null ? "-" : `${(100 * value).toFixed(1)}%`),
    confidence: (value) => (value === null ? "-" : value > 0.995 ? ">99%" : value < 0.005 ? "<1%" : `${(100 * value).toFixed(0)}%`),
    points: (value) => (value === null ? "-" : signed((100 * value).toFixed(1))),
    number: (value) => (value === null ? "-" : String(Number(value.toPrecision(3)))),
    change: (value) => (value === null ? "-" : signed(String(Number(value.toPrecision(3))))),
  };
  const LENGTH = 25;

  function clientTable(holder) {
    const data = page.tables[holder.dataset.table];
    const state = { column: null, descending: false, search: "", cluster: "", start: 0 };
    const place = data.columns.findIndex((column) => column.kind === "cluster");
    const alone = new Set(data.alone);
    const groupOf = (row) => (alone.has(row[place]) ? "alone" : row[place] < 0 ? "unclustered" : String(row[place]));
    const clusters = [...new Set(data.rows.map(groupOf))].sort(compare);

    const filters = make("div", undefined, { class: "filters" });
    const searchLabel = make("label", "Search clients");
    const search = make("input", undefined, { type: "search", placeholder: "part of a client's name" });
    searchLabel.append(search);
    const clusterLabel = make("label", "Cluster");
    const select = make("select");
    select.append(make("option", "all", { value: "" }));
    clusters.forEach((c) => select.append(make("option", c, { value: c })));
    clusterLabel.append(select);
    const download = make("button", "Save as CSV", { type: "button" });
    filters.append(searchLabel, clusterLabel, download);

    const table = make("table");
    const head = make("tr");
    data.columns.forEach((column, number) => {
      const cell = make("th", undefined, { scope: "col", class: isNumber(column) ? "number" : "" });
      const button = make("button", column.title, { type: "button" });
      button.addEventListener("click", () => {
        state.descending = state.column === number ? !state.descending : false;
        state.column = number;
        state.start = 0;
        show();
      });
      cell.append(button);
      head.append(cell);
    });
    const top = make("thead");
    top.append(head);
    const body = make("tbody");
    table.append(top, body);
    const scroll = make("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": "Clients" });
    scroll.append(table);

    const pager = make("div", undefined, { class: "pager" });
    const back = make("button", "Back", { type: "button" });
    const next = make("button", "Next", { type: "button" });
    const status = make("span", "", { role: "status" });
    pager.append(back, next, status);
    holder.replaceChildren(filters, scroll, pager);

    function selected() {
      const search = state.search.toLowerCase();
      const rows = data.rows.filter((row) =>
        (!search || String(row[0]).toLowerCase().includes(search)) &&
        (state.cluster === "" || groupOf(row) === state.cluster));
      if (state.column === null) return rows;
      const sign = state.descending ? -1 : 1;
      return rows.sort((a, b) => sign * compare(a[state.column], b[state.column]));
    }

    function show() {
      const rows = selected();
      body.replaceChildren(...rows.slice(state.start, state.start + LENGTH).map(line));
      [...head.children].forEach((cell, number) => cell.setAttribute("aria-sort",
        number !== state.column ? "none" : state.descending ? "descending" : "ascending"));
      const end = Math.min(state.start + LENGTH, rows.length);
      const sampled = data.rows.length < data.total ? ` (a sample of the ${data.total.toLocaleString("en")} clients)` : "";
      status.textContent = rows.length
        ? `${(state.start + 1).toLocaleString("en")} to ${end.toLocaleString("en")} of ${rows.length.toLocaleString("en")}${sampled}`
        : "No client matches.";
      back.disabled = state.start === 0;
      next.disabled = end >= rows.length;
    }

    function line(values) {
      const row = make("tr");
      values.forEach((value, number) => {
        const column = data.columns[number];
        const cell = make(number ? "td" : "th", undefined, { class: isNumber(column) ? "number" : "" });
        if (!number) cell.setAttribute("scope", "row");
        if (column.kind === "cluster") {
          const chip = make("span", undefined, { class: "chip" });
          const dot = make("span", undefined, { class: "dot" });
          dot.style.background = data.colors[value];
          chip.append(dot, groupOf(values));
          cell.append(chip);
        } else cell.textContent = FORMATS[column.kind](value);
        row.append(cell);
      });
      return row;
    }

    search.addEventListener("input", () => { state.search = search.value; state.start = 0; show(); });
    select.addEventListener("change", () => { state.cluster = select.value; state.start = 0; show(); });
    back.addEventListener("click", () => { state.start = Math.max(0, state.start - LENGTH); show(); });
    next.addEventListener("click", () => { state.start += LENGTH; show(); });
    download.addEventListener("click", () => save(data, selected()));
    show();
  }

  const isNumber = (column) => !["text", "cluster"].includes(column.kind);

  function compare(a, b) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function save(data, rows) {
    const quote = (value) => (/[",\n]/.test(String(value ?? "")) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? ""));
    const lines = [data.columns.map((column) => column.title), ...rows].map((row) => row.map(quote).join(","));
    const link = make("a", undefined, { download: "clients.csv" });
    link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // ---- views: a comparison, and each of its runs -------------------------------------------------
  function showView(id) {
    const views = [...document.querySelectorAll(".view")];
    if (!views.some((view) => view.id === id)) return false;
    views.forEach((view) => { view.hidden = view.id !== id; });
    const picker = document.getElementById("picker");
    if (picker) picker.value = id;
    return true;
  }

  function follow() {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    if (!target) return;
    const view = target.closest(".view");
    if (view && view.hidden) {
      showView(view.id);
      target.scrollIntoView();
    }
  }

  // ---- start -----------------------------------------------------------------------------------
  function start() {
    document.querySelectorAll(".chart").forEach((element) => observer.observe(element));
    document.querySelectorAll(".client-table").forEach(clientTable);
    document.querySelectorAll("details.numbers").forEach((details) =>
      details.addEventListener("toggle", () => { if (details.open) showNumbers(details); }));
  }

  document.getElementById("theme").addEventListener("click", switchTheme);
  preferred.addEventListener("change", redraw);
  const picker = document.getElementById("picker");
  if (picker) picker.addEventListener("change", () => { location.hash = picker.value; });
  addEventListener("hashchange", follow);
  follow();
  start();

  // The page of a run in progress replaces its content through this.
  window.srfcaPage = {
    replace(content, data) {
      page = data;
      for (const result of views.values()) result.finalize();
      views.clear();
      drawn.clear();
      document.getElementById("content").innerHTML = content;
      start();
      document.querySelectorAll(".chart").forEach((e) => { if (e.getBoundingClientRect().top < innerHeight + 400) draw(e); });
    },
    make,
  };
})();
