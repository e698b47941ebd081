"use strict";
/* Puts data into the page: tables that are open now, others when they are opened. */
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const tables = new Map(data.figures.filter((f) => f.table).map((f) => [f.id, f.table]));

  function fill(host) {
    if (host.dataset.filled) return;
    host.dataset.filled = "yes";
    const title = document.getElementById("title-" + host.dataset.table).textContent;
    Tables.build(host, tables.get(host.dataset.table), title);
  }

  /* PNG and SVG of a picture, in the light scheme, as it is zoomed. */
  function figureFiles(host) {
    const title = document.getElementById("title-" + host.dataset.figure).textContent;
    const box = document.createElement("p");
    box.className = "figure-files";
    for (const format of ["png", "svg"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = format.toUpperCase();
      button.setAttribute("aria-label", `${title} as ${button.textContent}`);
      button.addEventListener("click", () => Plots.save(host, format, title));
      box.append(button);
    }
    host.after(box);
  }

  const hosts = [...document.querySelectorAll("[data-table]")];
  for (const host of hosts) {
    if (host.tagName !== "DETAILS") fill(host);
    else host.addEventListener("toggle", () => host.open && fill(host));
  }

  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const host of closed) {
      if (hosts.includes(host)) fill(host);
      host.open = true;
    }
  });
  window.addEventListener("afterprint", () => closed.forEach((host) => { host.open = false; }));

  /* Where no timeline can be searched, "/" goes to the filter of the first table. */
  document.addEventListener("keydown", (event) => {
    const elsewhere = event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea");
    if (event.key !== "/" || elsewhere || document.querySelector(".viewer input")) return;
    const filter = [...document.querySelectorAll(".table-tools input")].find((input) => input.offsetParent);
    if (!filter) return;
    event.preventDefault();
    filter.focus();
  });

  Plots.start(data.figures, data.dark);
  for (const host of document.querySelectorAll(".viewer")) {
    const {viewer} = data.figures.find((f) => f.id === host.dataset.figure);
    Viewer.start(host, viewer, data.dark).then((trace) => {
      if (trace) Plots.onZoom((range) => trace.follow(range));
    });
    Viewer.onView((range) => Plots.zoom(range));
  }
  document.querySelectorAll(".plot").forEach(figureFiles);
  document.querySelectorAll(".views").forEach(Views.start);
})();
