// Builds the parts of panels, which are data: tables here, figures by Plotly, points by points.js.
(() => {
  "use strict";

  function element(name, given, ...children) {
    const made = Object.assign(document.createElement(name), given);
    made.append(...children.filter((each) => each !== null));
    return made;
  }

  // An array in binary form as Plotly reads it: {dtype, bdata}.
  function unpacked(given) {
    if (Array.isArray(given)) return given;
    const kinds = {f4: Float32Array, f8: Float64Array, i4: Int32Array};
    const raw = Uint8Array.from(atob(given.bdata), (each) => each.charCodeAt(0));
    return new (kinds[given.dtype] || Float32Array)(raw.buffer);
  }

  function text(value) {
    if (value === null || value === undefined) return "";
    return typeof value === "number" ? value.toLocaleString("en", {maximumFractionDigits: 4}) : String(value);
  }

  function table(part) {
    const numeric = part.columns.map((_, place) => part.rows.some((row) => typeof row[place] === "number"));
    const kind = (value, place) => numeric[place] ? "number" : typeof value === "string" && value.length > 60 ? "text" : "";
    const cell = (name, value, place) => element(name, {className: kind(value, place), textContent: text(value)});
    const head = element("thead", {}, element("tr", {}, ...part.columns.map((each, place) => cell("th", each, place))));
    const body = element("tbody", {}, ...part.rows.map((row) => element("tr", {}, ...row.map((each, place) => cell("td", each, place)))));
    const made = element("div", {className: "scroll tall"}, element("table", {}, head, body));
    if (part.all <= part.rows.length) return made;
    return element("div", {}, made, element("p", {className: "note", textContent: `The first ${text(part.rows.length)} of ${text(part.all)} rows.`}));
  }

  function plot(part) {
    const place = element("div", {className: "plot"});
    place.style.minHeight = `${part.layout.height}px`;
    place.figure = part;
    return place;
  }

  function built(part) {
    const makers = {table, plot, points: (each) => window.pointsElement(each, element, unpacked)};
    const maker = makers[part.kind];
    const content = maker ? maker(part) : element("p", {className: "note", textContent: "This part is of a newer version."});
    return element("div", {className: `part part-${part.kind}`},
      part.title ? element("h3", {textContent: part.title}) : null, content,
      part.note ? element("p", {className: "note", textContent: part.note}) : null);
  }

  async function fill(place) {
    const parts = place.querySelector(".parts");
    try {
      const embedded = document.getElementById(`panel-${place.dataset.panel}`);
      const found = embedded ? JSON.parse(embedded.textContent) : await (await fetch(place.dataset.source)).json();
      parts.replaceChildren(...found.parts.map(built));
    } catch (error) {
      parts.replaceChildren(element("p", {className: "note warn", textContent: "This panel cannot be read."}));
    }
  }

  window.panelsBuilt = Promise.all([...document.querySelectorAll("[data-panel]")].map(fill));
})();
