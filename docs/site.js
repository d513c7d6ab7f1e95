// A box that filters the rows of the tables below it, where a page has <div class="filter">.
for (const place of document.querySelectorAll(".filter")) {
  const box = document.createElement("input");
  const label = document.createElement("label");
  const count = document.createElement("output"); // screen readers say what is written into it
  box.type = "search";
  label.append(`${place.getAttribute("data-label")} `, box);
  place.append(label, count);
  const below = [...document.querySelectorAll("article tbody tr")].filter(
    (row) => place.compareDocumentPosition(row) & Node.DOCUMENT_POSITION_FOLLOWING,
  );
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of below) {
      const fits = words.every((word) => row.textContent?.toLowerCase().includes(word));
      row.toggleAttribute("hidden", !fits);
      shown += Number(fits);
      for (const name of row.querySelectorAll("code"))
        name.classList.toggle("found", words.some((word) => name.textContent?.toLowerCase().includes(word)));
    }
    count.textContent = words.length ? `${shown} of ${below.length} rows` : "";
  });
}
