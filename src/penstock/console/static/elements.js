// Owns making elements. Text is always text: nothing here, or anywhere in this page, reads a string as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Only what differs is touched, so that a look that changed nothing moves nothing.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function dress(element, name) {
  if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}
