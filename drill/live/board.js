"use strict";
// Takes the panels of the same page as it is now. A request for a document, unlike markup in a string, is nothing that
// the page's policy has to forbid.
const state = document.getElementById("state");
function again() {
  if (document.hidden) return;
  const request = new XMLHttpRequest();
  request.responseType = "document";
  request.timeout = 10000;
  request.onload = () => request.status === 200 ? take(request.response) : lost();
  request.onerror = request.ontimeout = lost;
  request.open("GET", location.href);
  request.send();
}
function take(page) {
  for (const old of document.querySelectorAll("[data-live]")) {
    const now = page.getElementById(old.id);
    if (now && !old.contains(document.activeElement)) old.replaceChildren(...now.childNodes); // a reader on a link keeps it
  }
  document.body.classList.remove("stale");
}
function lost() {
  if (document.body.classList.contains("stale")) return;
  document.body.classList.add("stale");
  state.textContent = "The demo does not answer; it was: " + state.textContent;
}
setInterval(again, 10000);
document.addEventListener("visibilitychange", again);
