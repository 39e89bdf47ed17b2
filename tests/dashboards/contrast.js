// Text of the page with its contrast against what lies behind it, as WCAG 2 computes it.
() => {
  const numbers = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((each) => (each /= 255) <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(each).backgroundColor);
      if (a > 0.99) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || element.closest("script, style, .bartext, .hoverlayer, .cn-close") || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), inPlot = element.closest("svg");
    if (style.visibility === "hidden" || style.display === "none") continue;
    const front = numbers(inPlot ? style.fill : style.color).slice(0, 3), back = behind(element);
    const [one, other] = [light(front), light(back)];
    found.push([text.slice(0, 60), (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)]);
  }
  return found;
}
