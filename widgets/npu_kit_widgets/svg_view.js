// Shows one SVG, lets its parts be chosen by mouse or keyboard, and says which one was.

const SVG = "http://www.w3.org/2000/svg";

// What the kit's renderers and Graphviz write, and nothing that runs, loads or leads anywhere.
const ELEMENTS = new Set([
  "svg", "g", "title", "desc", "text", "tspan", "rect", "path", "line", "polyline", "polygon", "circle", "ellipse",
]);

const MARGIN = 24; // pixels that stay around a part that was scrolled to

function isHarmless({ name, value }) {
  return !/^on|href$|^style$/i.test(name) && !/url\(|javascript:/i.test(value);
}

/** The text as an <svg> element that is safe to put into the page; null if the text is none. */
export function toElement(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
  const root = parsed.documentElement;
  if (root.namespaceURI !== SVG || root.localName !== "svg" || parsed.querySelector("parsererror")) return null;
  for (const element of [...root.querySelectorAll("*")]) {
    if (element.namespaceURI !== SVG || !ELEMENTS.has(element.localName)) element.remove();
  }
  for (const element of [root, ...root.querySelectorAll("*")]) {
    for (const attribute of [...element.attributes]) {
      if (!isHarmless(attribute)) element.removeAttributeNode(attribute);
    }
  }
  return document.importNode(root, true);
}

/** A frame around `element`, in the coordinates of its parent: a shape, so that it does not rest on colour. */
function frameOf(element) {
  const { x, y, width, height } = element.getBBox();
  const frame = document.createElementNS(SVG, "rect");
  const transform = element.getAttribute("transform");
  if (transform) frame.setAttribute("transform", transform);
  const place = { x: x - 4, y: y - 4, width: width + 8, height: height + 8, rx: 4 };
  for (const [name, value] of Object.entries(place)) frame.setAttribute(name, value);
  frame.setAttribute("class", "npu-frame");
  return frame;
}

class Drawing {
  constructor(model, el, holder) {
    this.model = model;
    this.el = el; // scrolls where the picture has a largest height
    this.holder = holder;
    this.parts = new Map(); // id -> element, in keyboard order
  }

  draw() {
    const focused = this.idOf(document.activeElement);
    const root = toElement(this.model.get("svg"));
    this.holder.classList.toggle("npu-empty", root === null);
    this.holder.replaceChildren(...(root ? [root] : []));
    this.root = root;
    this.parts.clear();
    if (!root) return;
    const attribute = `data-${this.model.get("part")}`;
    const choices = this.model.get("choices");
    const found = new Map();
    for (const element of root.querySelectorAll(`[${attribute}]`)) found.set(element.getAttribute(attribute), element);
    for (const id of choices ?? found.keys()) if (found.has(id)) this.parts.set(id, found.get(id));
    root.setAttribute("role", this.parts.size ? "listbox" : "img");
    for (const [id, element] of this.parts) {
      element.classList.add("npu-part");
      element.setAttribute("role", "option");
      element.setAttribute("aria-label", element.querySelector(":scope > title")?.textContent || id);
    }
    this.name();
    this.select();
    if (this.parts.has(focused)) this.parts.get(focused).focus({ preventScroll: true });
  }

  /** Give the picture the name that a screen reader says. */
  name() {
    this.root?.setAttribute("aria-label", this.model.get("alt"));
  }

  /** Show which part is selected; it, or else the first one, is where Tab enters the picture. */
  select() {
    const selected = this.model.get("selected");
    const entry = this.parts.has(selected) ? selected : this.parts.keys().next().value;
    for (const [id, element] of this.parts) {
      element.setAttribute("aria-selected", String(id === selected));
      element.setAttribute("tabindex", id === entry ? "0" : "-1");
    }
    this.frame();
    this.reveal(this.parts.get(selected));
  }

  /** Draw the frame of the selected part where it stands now. */
  frame() {
    for (const old of this.root?.querySelectorAll(".npu-frame") ?? []) old.remove();
    const element = this.parts.get(this.model.get("selected"));
    if (element && this.model.get("framed")) element.parentNode.append(frameOf(element));
  }

  /** Scroll the picture, and not the page, until `element` can be seen. */
  reveal(element) {
    if (!element) return;
    const part = element.getBoundingClientRect();
    const view = this.el.getBoundingClientRect();
    const above = view.top - part.top;
    const below = part.bottom - view.bottom;
    if (above > 0) this.el.scrollTop -= above + MARGIN;
    else if (below > 0) this.el.scrollTop += below + MARGIN;
  }

  /** The id of the part that holds `target`, if it is one of this picture's. */
  idOf(target) {
    if (!this.root?.contains(target)) return undefined;
    for (let at = target; at && at !== this.root; at = at.parentNode) {
      for (const [id, element] of this.parts) if (element === at) return id;
    }
    return undefined;
  }

  pick(id) {
    if (id !== undefined) this.model.send({ pick: id });
  }

  onKey(event) {
    const ids = [...this.parts.keys()];
    const at = ids.indexOf(this.idOf(event.target));
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const goals = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: ids.length - 1 };
    if (event.key === "Enter" || event.key === " ") this.pick(ids[at]);
    else if (event.key in goals) this.parts.get(ids[Math.max(0, Math.min(ids.length - 1, goals[event.key]))]).focus();
    else return;
    event.preventDefault();
    event.stopPropagation(); // JupyterLab would move to another cell
  }
}

function render({ model, el }) {
  const holder = document.createElement("div");
  holder.className = "npu-picture";
  el.replaceChildren(holder);
  const drawing = new Drawing(model, el, holder);
  const listeners = {
    "change:svg": () => drawing.draw(),
    "change:choices": () => drawing.draw(),
    "change:alt": () => drawing.name(),
    "change:selected": () => drawing.select(),
  };
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);
  holder.addEventListener("click", (event) => drawing.pick(drawing.idOf(event.target)));
  holder.addEventListener("keydown", (event) => drawing.onKey(event));
  drawing.draw();
  // A frame is measured, and what is not on the page yet, or is on a hidden tab, has no size.
  const observer = new ResizeObserver(() => drawing.frame());
  observer.observe(holder);
  return () => {
    observer.disconnect();
    for (const [name, listener] of Object.entries(listeners)) model.off(name, listener);
  };
}

export default { render };
