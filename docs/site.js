// A box that filters the rows of the tables below it, where a page has <div class="filter">.
for (const place of document.querySelectorAll(".filter")) {
  const box = document.createElement("input");
  const label = document.createElement("label");
  const count = document.createElement("output"); // screen readers say what is written into it
  box.type = "search";
  label.append(`${place.getAttribute("data-label")} `, box);
  place.append(label, count);
  const rows = [...document.querySelectorAll("article tbody tr")]
    .filter((row) => place.compareDocumentPosition(row) & Node.DOCUMENT_POSITION_FOLLOWING)
    .map((row) => {
      const text = row.textContent?.toLowerCase() ?? "";
      return { row, text, names: row.children[0].innerHTML.split(", ") };
    });
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { row, text, names } of rows) {
      const fits = words.every((word) => text.includes(word));
      row.toggleAttribute("hidden", !fits);
      shown += Number(fits);
      // Of many names, those that were asked for; of all names, if the words are in other cells.
      const asked = names.filter((name) => words.some((word) => name.toLowerCase().includes(word)));
      const rest = asked.length && asked.length < names.length ? ["…"] : [];
      row.children[0].innerHTML = [...(asked.length ? asked : names), ...rest].join(", ");
    }
    count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  });
}
