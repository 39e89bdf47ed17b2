// Points in the plane on a canvas: zoom, names, search, neighbours. 100,000 take some 10 ms to draw.
(() => {
  "use strict";
  const KINDS = ["#4c78dd", "#e8743b", "#2f9e62", "#d9a514", "#9a63e0", "#1aa3a8", "#e0609a", "#a0714f", "#7b93c9", "#8a8f2c"];
  const REST = "#9aa4b2", SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const HEIGHT = 460, NEAR = 12, CELLS = 128, LISTED = 40;

  function ramp(share) {
    const place = Math.min(SCALE.length - 1.001, Math.max(0, share) * (SCALE.length - 1)), low = Math.floor(place);
    return `rgb(${SCALE[low].map((each, i) => Math.round(each + (SCALE[low + 1][i] - each) * (place - low))).join()})`;
  }

  // Colour of each point as a number of a short list, so that a canvas changes its colour only as often.
  function coloured(given, count, unpacked) {
    if (!given) return {codes: new Int32Array(count), colours: [KINDS[0]], entries: []};
    if (given.values) {
      const values = unpacked(given.values), logs = Float64Array.from(values, (each) => Math.sign(each) * Math.log1p(Math.abs(each)));
      const low = logs.reduce((a, b) => Math.min(a, b), Infinity), high = logs.reduce((a, b) => Math.max(a, b), -Infinity);
      const codes = Int32Array.from(logs, (each) => high > low ? Math.round(31 * (each - low) / (high - low)) : 0);
      const ends = [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
      return {codes, colours: Array.from({length: 32}, (_, i) => ramp(i / 31)), text: (i) => values[i].toLocaleString("en"),
              entries: [[ramp(0), ends[0].toLocaleString("en")], [ramp(0.5), "…"], [ramp(1), ends[1].toLocaleString("en")]]};
    }
    const own = unpacked(given.codes), shown = Math.min(KINDS.length, given.kinds.length);
    const codes = Int32Array.from(own, (each) => each >= 0 && each < shown ? each : shown);
    const entries = given.kinds.slice(0, shown).map((name, i) => [KINDS[i], name]);
    if (codes.some((each) => each === shown)) entries.push([REST, given.kinds.length > shown ? `${given.kinds.length - shown} others` : "none"]);
    return {codes, colours: [...KINDS.slice(0, shown), REST], entries, text: (i) => own[i] >= 0 ? given.kinds[own[i]] : "none"};
  }

  window.pointsElement = (part, element, unpacked) => {
    const x = unpacked(part.x), y = unpacked(part.y), names = part.names, count = names.length;
    const starts = part.links ? unpacked(part.links.starts) : null, ends = part.links ? unpacked(part.links.ends) : null;
    const canvas = element("canvas", {className: "points", tabIndex: 0});
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${count} points in the plane`);
    const says = element("div", {className: "points-says"}), legend = element("div", {className: "points-legend"});
    const choice = element("select", {ariaLabel: "colour by"}, ...part.colourings.map((each, i) => element("option", {value: i, textContent: `colour by ${each.name}`})));
    const search = element("input", {type: "search", placeholder: "find a name", ariaLabel: "find a point by its name"});
    const whole = element("button", {type: "button", textContent: "all", className: "quiet"});
    const found = element("div", {className: "points-found"});
    const extent = (values) => values.reduce(([a, b], each) => [Math.min(a, each), Math.max(b, each)], [Infinity, -Infinity]);
    const [left, right] = extent(x), [bottom, top] = extent(y);
    let view, looks = coloured(part.colourings[0], count, unpacked), chosen = -1, under = -1, waits = false;
    let order = new Int32Array(count), begins = [];

    // Places of the points by cell, to find the one under a pointer.
    const cells = Array.from({length: CELLS * CELLS}, () => []);
    const cell = (value, low, high) => Math.min(CELLS - 1, Math.max(0, Math.floor(CELLS * (value - low) / (high - low || 1))));
    for (let i = 0; i < count; i++) cells[cell(y[i], bottom, top) * CELLS + cell(x[i], left, right)].push(i);

    function sorted() {  // by colour, the grey ones first
      const sizes = new Int32Array(looks.colours.length + 1);
      for (const each of looks.codes) sizes[each + 1]++;
      for (let c = 1; c < sizes.length; c++) sizes[c] += sizes[c - 1];
      begins = [...sizes];
      const next = sizes.slice();
      for (let i = 0; i < count; i++) order[next[looks.codes[i]]++] = i;
    }

    function fit() {
      const width = canvas.clientWidth || 600, scale = 0.94 * Math.min(width / (right - left || 1), HEIGHT / (top - bottom || 1));
      view = {scale, dx: width / 2 - scale * (left + right) / 2, dy: HEIGHT / 2 + scale * (bottom + top) / 2, first: scale};
    }

    const px = (i) => view.dx + view.scale * x[i], py = (i) => view.dy - view.scale * y[i];
    const neighbours = (i) => i >= 0 && starts ? Array.from(ends.subarray(starts[i], starts[i + 1])) : [];

    function draw() {
      waits = false;
      const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
      if (!width) return;
      if (canvas.width !== Math.round(width * ratio)) { canvas.width = Math.round(width * ratio); canvas.height = Math.round(HEIGHT * ratio); }
      const context = canvas.getContext("2d"), zoom = view.scale / view.first;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, HEIGHT);
      const size = Math.min(9, Math.max(1.6, 90 / Math.sqrt(count)) * Math.sqrt(zoom)), near = neighbours(chosen);
      context.globalAlpha = chosen >= 0 ? 0.22 : 0.85;
      for (let turn = 0; turn < looks.colours.length; turn++) {
        const c = (turn + looks.colours.length - 1) % looks.colours.length;
        context.fillStyle = looks.colours[c];
        for (let k = begins[c]; k < begins[c + 1]; k++) {
          const a = px(order[k]), b = py(order[k]);
          if (a > -9 && b > -9 && a < width + 9 && b < HEIGHT + 9) context.fillRect(a - size / 2, b - size / 2, size, size);
        }
      }
      context.globalAlpha = 1;
      const ink = getComputedStyle(canvas).color;
      if (chosen >= 0) {
        context.strokeStyle = ink; context.globalAlpha = 0.35; context.beginPath();
        for (const each of near) { context.moveTo(px(chosen), py(chosen)); context.lineTo(px(each), py(each)); }
        context.stroke(); context.globalAlpha = 1;
      }
      for (const [i, radius] of [...near.map((each) => [each, Math.max(4, size / 2)]), [chosen, 7], [under, 6]]) {
        if (i < 0) continue;
        context.beginPath(); context.arc(px(i), py(i), radius, 0, 7);
        context.fillStyle = looks.colours[looks.codes[i]]; context.fill();
        context.strokeStyle = ink; context.lineWidth = 1.2; context.stroke();
      }
    }
    const later = () => { if (!waits) { waits = true; requestAnimationFrame(draw); } };

    function nearest(a, b) {
      const reach = NEAR / view.scale, dx = (a - view.dx) / view.scale, dy = (view.dy - b) / view.scale;
      let best = -1, least = NEAR * NEAR;
      for (let r = cell(dy - reach, bottom, top); r <= cell(dy + reach, bottom, top); r++) {
        for (let c = cell(dx - reach, left, right); c <= cell(dx + reach, left, right); c++) {
          for (const i of cells[r * CELLS + c]) {
            const far = (px(i) - a) ** 2 + (py(i) - b) ** 2;
            if (far < least) [best, least] = [i, far];
          }
        }
      }
      return best;
    }

    const texts = part.colourings.map((each) => coloured(each, count, unpacked).text);
    const about = (i) => [names[i], ...texts.map((each, n) => `${part.colourings[n].name} ${each(i)}`)].join(" · ");

    function choose(i) {
      chosen = i;
      const near = neighbours(i);
      found.replaceChildren();
      if (i >= 0) {
        found.append(element("b", {textContent: about(i)}));
        if (starts) found.append(element("span", {className: "faint", textContent: near.length ? ` next to ${near.length} of these: ` : " has no neighbour among these."}));
        for (const each of near.slice(0, LISTED)) {
          found.append(element("button", {type: "button", className: "quiet", textContent: names[each], onclick: () => choose(each)}));
        }
      }
      later();
    }

    function zoom(factor, a, b) {
      const scale = Math.min(view.first * 400, Math.max(view.first * 0.5, view.scale * factor)), by = scale / view.scale;
      view = {...view, scale, dx: a - (a - view.dx) * by, dy: b - (b - view.dy) * by};
      later();
    }

    const fingers = new Map();
    let moved = 0;
    canvas.onpointerdown = (event) => { canvas.setPointerCapture(event.pointerId); fingers.set(event.pointerId, [event.offsetX, event.offsetY]); moved = 0; };
    canvas.onpointermove = (event) => {
      const a = event.offsetX, b = event.offsetY, before = fingers.get(event.pointerId);
      if (!before) {
        under = nearest(a, b);
        says.textContent = under >= 0 ? about(under) : "";
        says.style.transform = `translate(${Math.max(0, Math.min(a + 12, canvas.clientWidth - says.offsetWidth - 4))}px, ${Math.max(0, b - 34)}px)`;
        return later();
      }
      const other = [...fingers].find(([id]) => id !== event.pointerId);
      if (other) {
        const span = (from) => Math.hypot(from[0] - other[1][0], from[1] - other[1][1]);
        zoom(span([a, b]) / Math.max(1, span(before)), other[1][0], other[1][1]);
      } else { view = {...view, dx: view.dx + a - before[0], dy: view.dy + b - before[1]}; later(); }
      moved += Math.abs(a - before[0]) + Math.abs(b - before[1]);
      fingers.set(event.pointerId, [a, b]);
    };
    canvas.onpointerup = (event) => { fingers.delete(event.pointerId); if (moved < 6) choose(nearest(event.offsetX, event.offsetY)); };
    canvas.onpointercancel = (event) => fingers.delete(event.pointerId);
    canvas.onpointerleave = () => { under = -1; says.textContent = ""; later(); };
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY); }, {passive: false});
    canvas.onkeydown = (event) => { if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.3 : 1 / 1.3, canvas.clientWidth / 2, HEIGHT / 2); };
    whole.onclick = () => { fit(); search.value = ""; choose(-1); };
    search.oninput = () => {
      const sought = search.value.trim().toLowerCase();
      if (!sought) return choose(-1);
      const exact = names.findIndex((each) => each.toLowerCase() === sought);
      const hits = [];
      for (let i = 0; i < count && hits.length < LISTED; i++) if (names[i].toLowerCase().includes(sought)) hits.push(i);
      if (exact >= 0 || hits.length === 1) return choose(exact >= 0 ? exact : hits[0]);
      choose(-1);
      found.replaceChildren(element("span", {className: "faint", textContent: hits.length ? "Which one? " : "There is none of this name."}),
        ...hits.map((each) => element("button", {type: "button", className: "quiet", textContent: names[each], onclick: () => choose(each)})));
    };
    choice.onchange = () => { looks = coloured(part.colourings[Number(choice.value)], count, unpacked); sorted(); keys(); later(); };
    function keys() {
      legend.replaceChildren(...looks.entries.map(([colour, name]) => {
        const dot = element("i", {});
        dot.style.background = colour;
        return element("span", {}, dot, name);
      }));
    }
    fit();
    sorted();
    keys();
    new ResizeObserver(() => { fit(); later(); }).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
    return element("div", {}, element("div", {className: "bar"}, part.colourings.length > 1 ? choice : null, search, whole), legend,
      element("div", {className: "points-place"}, canvas, says), found);
  };
})();
