
// The page of a run in progress: its progress, and the report when it has changed.
(() => {
  const box = document.getElementById("live");
  const spoken = document.getElementById("live-spoken");
  let shown = box.dataset.key;
  let loading = false;

  function clock(element) {
    const seconds = Math.max(0, Math.round(Date.now() / 1000 - Number(element.dataset.since)));
    const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    element.textContent = parts.map((part) => String(part).padStart(2, "0")).join(":");
  }
  const tick = () => box.querySelectorAll("[data-since]").forEach(clock);

  function update(status) {
    const open = box.querySelector("details.log")?.open;
    box.innerHTML = status.html;
    const log = box.querySelector("details.log");
    if (log && open) log.open = true;
    if (spoken.textContent !== status.title) spoken.textContent = status.title;
    document.title = `${status.title} · ${status.page}`;
    document.getElementById("page-title").textContent = status.page;
    tick();
    if (status.key !== shown) load();
  }

  async function load() {
    if (loading) return;
    loading = true;
    try {
      const reply = await fetch("content");
      const content = await reply.json();
      if (content.views > 1) { location.reload(); return; } // the list of views changes too
      const place = scrollY;
      const filters = [...document.querySelectorAll(".client-table .filters :is(input, select)")].map((e) => e.value);
      srfcaPage.replace(content.html, content.data);
      document.querySelectorAll(".client-table .filters :is(input, select)").forEach((element, number) => {
        if (!filters[number]) return;
        element.value = filters[number];
        element.dispatchEvent(new Event(element.matches("select") ? "change" : "input"));
      });
      scrollTo({ top: place, behavior: "instant" });
      shown = content.key;
      box.dataset.key = shown;
    } finally { loading = false; }
  }

  const events = new EventSource("events");
  events.addEventListener("status", (event) => update(JSON.parse(event.data)));
  events.addEventListener("error", () => {
    const lost = srfcaPage.make("p", "No connection to 'srfca watch': this is the last state that it sent.", { class: "warning lost" });
    if (!box.querySelector(".lost")) box.querySelector(".box")?.prepend(lost);
  });
  tick();
  setInterval(tick, 1000);
})();
