"use strict";
/* Tables from data: every cell is set as text, never as markup. */
const Tables = (() => {
  const DASH = "\u2013";
  const TOOLS_FROM = 20;

  function cellText(cell) {
    if (cell === null) return DASH;
    return Array.isArray(cell) ? cell[1] : cell;
  }

  function cellKey(cell) {
    return Array.isArray(cell) ? cell[0] : cell;
  }

  function element(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  /* Text that may break after a slash. */
  function appendWords(node, text) {
    for (const part of text.split(/(?<=.[/])/)) {
      if (node.firstChild) node.append(document.createElement("wbr"));
      node.append(document.createTextNode(part));
    }
  }

  /* A word that leads to a report beside this page, and nowhere else. */
  function link(text, address) {
    const node = element("a", "", text);
    if (/^reports\/[\w.+-]+\.html$/.test(address)) node.href = address;
    return node;
  }

  function dataCell(cell, isWords, isHead) {
    const text = cellText(cell);
    const td = element(isHead ? "th" : "td", isWords ? "words" : "");
    if (isHead) td.scope = "row";
    if (Array.isArray(cell) && cell.length > 2) {
      td.append(link(text, cell[2]));
    } else if (text.length > 24) {
      td.classList.add("long");
      appendWords(td, text);
    } else {
      td.textContent = text;
    }
    if (cell === null) {
      td.classList.add("none");
      td.setAttribute("aria-label", "not recorded");
    }
    return td;
  }

  function fillBody(body, columns, rows) {
    const fragment = document.createDocumentFragment();
    for (const row of rows) {
      const tr = document.createElement("tr");
      row.forEach((cell, i) => tr.append(dataCell(cell, columns[i][1], i === 0)));
      fragment.append(tr);
    }
    body.replaceChildren(fragment);
  }

  /* Unknown cells come last in both directions. */
  function compare(a, b, direction) {
    const x = cellKey(a), y = cellKey(b);
    if (x === null || y === null) return (x === null) - (y === null);
    if (typeof x === "number" && typeof y === "number") return direction * (x - y);
    return direction * String(x).localeCompare(String(y), undefined, {numeric: true});
  }

  function sorted(rows, column, direction) {
    return [...rows].sort((a, b) => compare(a[column], b[column], direction));
  }

  function matching(rows, words) {
    const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
    if (!parts.length) return rows;
    return rows.filter((row) => {
      const line = row.map(cellText).join("\n").toLowerCase();
      return parts.every((part) => line.includes(part));
    });
  }

  /* Rows whose cells hold what was typed above their columns: words, or > < = and a number. */
  function matchingColumns(rows, filters) {
    const tests = filters.map(([column, words]) => [column, cellTest(words)]);
    return rows.filter((row) => tests.every(([column, test]) => test(row[column])));
  }

  function cellTest(words) {
    const limit = /^([<>]=?|=)\s*(-?[\d.]+(?:e-?\d+)?)$/i.exec(words);
    if (!limit) return (cell) => cellText(cell).toLowerCase().includes(words.toLowerCase());
    const number = Number(limit[2]), sign = limit[1];
    return (cell) => {
      const key = cellKey(cell);
      if (typeof key !== "number") return false;
      if (sign === "=") return key === number;
      return (sign[0] === ">" ? key > number : key < number) || (sign.length > 1 && key === number);
    };
  }

  function said(visible, table) {
    const all = table.rows.length;
    const noun = visible === 1 ? "row matches" : "rows match";
    const found = visible === all ? "" : `${visible.toLocaleString("en")} ${noun}. `;
    return found + (table.cut ? `Shown: ${table.cut}.` : `${all.toLocaleString("en")} rows.`);
  }

  /* An interval in a heading stays in one line: "0 to 4 s". */
  const unbroken = (title) => title.replace(/(?<=\d) (?=to|[nmµ]?s\b)|(?<=\bto) (?=\d)/g, "\u00a0");

  function headCell(column, onSort) {
    const th = element("th", column[1] ? "words" : "");
    th.scope = "col";
    if (!onSort) {
      th.append(element("span", "", unbroken(column[0])));
      return th;
    }
    const button = element("button", "", unbroken(column[0]));
    button.type = "button";
    button.addEventListener("click", () => onSort(th));
    th.append(button);
    return th;
  }

  function press(text, action) {
    const node = element("button", "", text);
    node.type = "button";
    node.addEventListener("click", action);
    return node;
  }

  /* A row of fields under the heads, one a column, hidden until it is asked for. */
  function columnFilters(state, table, draw) {
    const line = element("tr", "filters");
    line.hidden = true;
    table.columns.forEach(([title, isWords], i) => {
      const cell = element("td"), input = element("input");
      input.type = "search";
      input.placeholder = isWords ? "words" : "> 0.5";
      input.setAttribute("aria-label", `Filter ${title}`);
      input.addEventListener("input", () => {
        state.filters.delete(i);
        if (input.value.trim()) state.filters.set(i, input.value.trim());
        draw();
      });
      cell.append(input);
      line.append(cell);
    });
    return line;
  }

  function files(state, table, title, filters) {
    const box = element("p", "table-files");
    if (table.rows.length >= TOOLS_FROM) {
      const open = press("filter by column", () => {
        filters.hidden = !filters.hidden;
        open.setAttribute("aria-expanded", String(!filters.hidden));
      });
      open.setAttribute("aria-expanded", "false");
      box.append(open);
    }
    box.append(...TableFiles.buttons(title, table.columns, () => state.rows, press));
    return box;
  }

  /* The second column stays in sight beside the first where that is the rank. */
  function stick(grid, columns) {
    if (columns.length < 5 || columns[0][0] !== "rank") return;
    grid.classList.add("two");
    const width = () => grid.style.setProperty("--first", `${grid.tHead.rows[0].cells[0].offsetWidth}px`);
    new ResizeObserver(width).observe(grid);
  }

  function tools(state, table, draw) {
    const box = element("div", "table-tools");
    const label = element("label", "", "Filter ");
    const input = element("input");
    input.type = "search";
    input.placeholder = "words in any column";
    input.addEventListener("input", () => { state.words = input.value; draw(); });
    label.append(input);
    const status = element("span", "status");
    status.setAttribute("role", "status");
    state.tell = (visible) => { status.textContent = said(visible, table); };
    box.append(label, status);
    return box;
  }

  function nextSort(state, th, column, isWords) {
    const now = th.getAttribute("aria-sort");
    const first = isWords ? "ascending" : "descending";
    const other = isWords ? "descending" : "ascending";
    for (const cell of th.parentNode.children) cell.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", now === first ? other : first);
    state.column = column;
    state.direction = th.getAttribute("aria-sort") === "ascending" ? 1 : -1;
  }

  function build(host, table, title) {
    const state = {column: null, direction: 1, words: "", filters: new Map(), rows: [], tell: () => {}};
    const grid = element("table");
    const body = element("tbody");
    const draw = () => {
      let rows = matchingColumns(matching(table.rows, state.words), [...state.filters]);
      if (state.column !== null) rows = sorted(rows, state.column, state.direction);
      state.rows = rows;
      fillBody(body, table.columns, rows);
      state.tell(rows.length);
    };
    const long = table.rows.length >= TOOLS_FROM;
    const head = element("tr");
    table.columns.forEach((column, i) => {
      const onSort = (th) => { nextSort(state, th, i, column[1]); draw(); };
      head.append(headCell(column, table.rows.length > 2 ? onSort : null));
    });
    if (Number.isInteger(table.sorted)) head.children[table.sorted].setAttribute("aria-sort", "descending");
    const thead = element("thead");
    const filters = columnFilters(state, table, draw);
    thead.append(head, filters);
    grid.append(element("caption", "unseen", title), thead, body);
    if (long) host.append(tools(state, table, draw));
    const box = element("div", long ? "table-box" : "table-box whole");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", title + ", table");
    box.append(grid);
    host.append(box, files(state, table, title, filters));
    draw();
    stick(grid, table.columns);
    if (!long && table.cut) host.append(element("p", "made", `Shown: ${table.cut}.`));
  }

  return {build};
})();
