"use strict";
for (const region of document.querySelectorAll(".rows")) {
  const find = region.previousElementSibling;
  const [box, output] = [find.querySelector("input"), find.querySelector("output")];
  const body = region.querySelector("tbody");
  const rows = Array.from(body.rows);
  const texts = rows.map((row) => row.textContent.normalize("NFKC").toLowerCase());
  const order = new Intl.Collator(undefined, { numeric: true });
  const count = (shown) =>
    shown === rows.length
      ? `${rows.length.toLocaleString("en")} classes`
      : `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} classes`;
  const heads = region.querySelectorAll("th");
  const named = !heads[1].classList.contains("n") && heads[1].textContent === "name";
  const search = () => {
    const sought = box.value.trim().normalize("NFKC").toLowerCase();
    const digits = /^[0-9]+$/.test(sought);
    let shown = 0;
    rows.forEach((row, at) => {
      const hit = digits
        ? row.cells[0].textContent === sought || (named && row.cells[1].textContent.includes(sought))
        : texts[at].includes(sought);
      row.hidden = sought !== "" && !hit;
      shown += row.hidden ? 0 : 1;
    });
    output.textContent = count(shown);
  };
  box.addEventListener("input", search);
  find.hidden = false;
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    const numeric = head.classList.contains("n");
    const key = (row) => {
      const text = row.cells[column].textContent;
      if (!numeric) return text;
      const value = Number(text.replaceAll("\u2212", "-").replace("\u221e", "Infinity"));
      return Number.isNaN(value) ? Infinity : value;
    };
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = rows.map((row) => [key(row), row]);
      keyed.sort(([a], [b]) => (numeric ? a - b || 0 : order.compare(a, b)));
      if (down) keyed.reverse();
      body.append(...keyed.map(([, row]) => row));
    });
  });
}
