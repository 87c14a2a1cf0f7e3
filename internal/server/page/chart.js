// Small charts of what was sampled since the page was opened.

const svgSpace = "http://www.w3.org/2000/svg";
const width = 300, height = 64, band = 8; // in the chart's own units

function add(to, name, attributes) {
  const element = document.createElementNS(svgSpace, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  to.append(element);
  return element;
}

// History keeps the samples of the last 15 minutes; one without a value is a time
// at which the agent was not there.
export class History {
  constructor(every, longest = 900) {
    this.longest = Math.round(longest / every);
    this.every = every;
    this.samples = [];
  }

  push(sample) {
    this.samples.push(sample);
    if (this.samples.length > this.longest) this.samples.shift();
  }

  // span says how long ago the first one was.
  span() {
    const s = this.samples.length * this.every;
    return s < 90 ? `${Math.round(s)} s` : `${Math.round(s / 60)} min`;
  }
}

// draw draws a line of the values, and below it a band of the states, if there are
// any. scale turns a value into a share of the height.
export function draw(into, label, history, { value, scale, state }) {
  const svg = document.createElementNS(svgSpace, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const all = history.samples;
  const step = width / Math.max(all.length - 1, 30);
  const left = width - step * (all.length - 1);
  const bottom = state ? height - band - 4 : height - 1;
  add(svg, "line", { class: "axis", x1: 0, x2: width, y1: bottom, y2: bottom });

  let run = [];
  const finish = () => {
    if (run.length > 0) {
      const [first, last] = [run[0][0], run[run.length - 1][0]];
      const points = run.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
      add(svg, "path", { class: "area", d: `M${first.toFixed(1)} ${bottom}L${points}L${last.toFixed(1)} ${bottom}Z` });
      add(svg, "path", { class: "line", d: `M${points}${run.length === 1 ? "h1" : ""}` });
    }
    run = [];
  };
  all.forEach((sample, i) => {
    const x = left + i * step;
    if (sample === null) {
      finish();
      return;
    }
    run.push([x, bottom - scale(value(sample)) * (bottom - 3)]);
    if (state) {
      const kind = { up: "up", down: "down" }[state(sample)] ?? "other";
      add(svg, "rect", { class: kind, x: Math.max(0, x - step / 2).toFixed(1), width: (step * 1.02).toFixed(1), y: height - band, height: band });
    }
  });
  finish();
  into.replaceChildren(svg);
}
