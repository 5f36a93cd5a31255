// A button beside each block of code copies it.
for (const block of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.textContent);
    } catch { // a page without TLS may not: the text is selected instead
      getSelection().selectAllChildren(block);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  block.after(button);
}
// Below each query stands what it has now, if the exporter may ask a Prometheus.
document.querySelectorAll(".answer").forEach(async (place, number) => {
  const add = (to, name, text) => {
    const element = document.createElement(name);
    element.textContent = text;
    to.append(element);
    return element;
  };
  const says = add(place, "p", "Asking …");
  try {
    const response = await fetch(location.pathname.replace(/\.md$/, "") + "/" + number + location.search);
    if (!response.ok) {
      throw new Error(response.status + " " + await response.text());
    }
    const answer = await response.json();
    says.textContent = answer.says;
    const table = answer.rows && add(place, "table", "");
    for (const row of answer.rows || []) {
      const line = table.insertRow();
      add(line, "td", row.value).className = "number";
      const of = add(line, "td", row.labels);
      if (row.fills) {
        of.append(" ");
        add(of, "a", "Fill in " + row.names).href = row.fills;
      }
    }
  } catch (failed) {
    says.textContent = "No answer from the exporter: " + failed.message;
  }
});
