// Draws the figures of a page in its own colours, again when those change.
(() => {
  "use strict";
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function colours() {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue(name).trim();
  }

  function themed(layout, entries) {
    const colour = colours(), made = structuredClone(layout), ink = colour("--ink");
    Object.assign(made, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: made.meta?.ground ? colour("--ground") : "rgba(0,0,0,0)", autosize: true,
      font: {family: getComputedStyle(document.body).fontFamily, size: 12, color: ink},
      hoverlabel: {...made.hoverlabel, bgcolor: colour("--raised"), bordercolor: colour("--rule"), font: {color: ink}},
    });
    if (made.showlegend && entries > 4 && innerWidth < 640) made.height += 16 * entries;  // a line for each
    for (const name of Object.keys(made).filter((each) => /^[xy]axis\d*$/.test(each))) {
      Object.assign(made[name], {gridcolor: colour("--rule"), linecolor: colour("--rule"), zerolinecolor: colour("--rule")});
    }
    return made;
  }

  function draw(place) {
    const {data, layout} = place.figure || JSON.parse(document.getElementById(`figure-${place.dataset.figure}`).textContent);
    return Plotly.react(place, data, themed(layout, data.length), {displayModeBar: false, responsive: true})
      .then(() => { place.dataset.drawn = dark.matches ? "dark" : "light"; });
  }

  function drawAll() {
    return Promise.all([...document.querySelectorAll(".plot")].map(draw))
      .then(() => { document.documentElement.dataset.ready = dark.matches ? "dark" : "light"; });
  }

  dark.addEventListener("change", drawAll);
  Promise.all([window.plotlyUnpacked, window.panelsBuilt]).then(drawAll);
})();
