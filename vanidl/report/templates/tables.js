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

  function dataCell(cell, isWords, isHead) {
    const text = cellText(cell);
    const td = element(isHead ? "th" : "td", isWords ? "words" : "");
    if (isHead) td.scope = "row";
    if (text.length > 24) {
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

  function said(visible, table) {
    const all = table.rows.length;
    const noun = visible === 1 ? "row matches" : "rows match";
    const found = visible === all ? "" : `${visible.toLocaleString("en")} ${noun}. `;
    return found + (table.cut ? `Shown: ${table.cut}.` : `${all.toLocaleString("en")} rows.`);
  }

  function headCell(column, onSort) {
    const th = element("th", column[1] ? "words" : "");
    th.scope = "col";
    if (!onSort) {
      th.append(element("span", "", column[0]));
      return th;
    }
    const button = element("button", "", column[0]);
    button.type = "button";
    button.addEventListener("click", () => onSort(th));
    th.append(button);
    return th;
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
    const state = {column: null, direction: 1, words: "", tell: () => {}};
    const grid = element("table");
    const body = element("tbody");
    const draw = () => {
      let rows = matching(table.rows, state.words);
      if (state.column !== null) rows = sorted(rows, state.column, state.direction);
      fillBody(body, table.columns, rows);
      state.tell(rows.length);
    };
    const long = table.rows.length >= TOOLS_FROM;
    const head = element("tr");
    table.columns.forEach((column, i) => {
      const onSort = (th) => { nextSort(state, th, i, column[1]); draw(); };
      head.append(headCell(column, table.rows.length > 2 ? onSort : null));
    });
    const thead = element("thead");
    thead.append(head);
    grid.append(element("caption", "unseen", title), thead, body);
    if (long) host.append(tools(state, table, draw));
    const box = element("div", "table-box");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", title + ", table");
    box.append(grid);
    host.append(box);
    draw();
    if (!long && table.cut) host.append(element("p", "made", `Shown: ${table.cut}.`));
  }

  return {build};
})();
