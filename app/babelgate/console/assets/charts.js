// The charts of the overview, from the figures that the live part of the page brings.
"use strict";

(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const HEIGHT = 180;
  let plots = [];

  const figures = () => {
    const found = document.getElementById("figures");
    return found === null ? null : JSON.parse(found.dataset.figures);
  };

  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return {
      lines: [1, 2, 3, 4, 5, 6].map((number) => of(`--line-${number}`)),
      axis: of("--quiet"),
      grid: of("--line"),
    };
  };

  const seconds = (value) => {
    if (value === null || value === undefined) return "–";
    const rounded = (number) => String(Number(number.toPrecision(3)));
    return value < 1 ? `${rounded(value * 1000)} ms` : `${rounded(value)} s`;
  };

  const clock = (at) => new Date(at * 1000).toISOString().slice(11, 16);

  // The whole hour, also when the gateway has run for a shorter time.
  const hour = (plot) => {
    const last = plot.data[0].at(-1) ?? Math.floor(Date.now() / 1000);
    return [last - 59 * 60, last];
  };

  const data = (given, chart) => [given.at, ...given[chart].map((each) => each.values)];

  const draw = () => {
    const given = figures();
    if (given === null) return;
    plots.forEach(({plot}) => plot.destroy());
    const {lines, axis, grid} = colours();
    plots = [...document.querySelectorAll("[data-chart]")].map((figure) => {
      const chart = figure.dataset.chart;
      const place = figure.querySelector(".plot");
      const scale = {stroke: axis, grid: {stroke: grid, width: 1}, ticks: {stroke: grid, width: 1}};
      const shown = chart === "latencies" ? (_, value) => seconds(value) : (_, value) => value ?? "–";
      const options = {
        tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
        width: place.clientWidth,
        height: HEIGHT,
        cursor: {points: {size: 6}},
        scales: {x: {range: hour}, y: {range: (_, least, most) => [0, most > 0 ? most * 1.05 : 1]}},
        axes: [{...scale, space: 60, values: (_, all) => all.map(clock)}, chart === "latencies" ? {...scale, size: 60, values: (_, all) => all.map(seconds)} : scale],
        series: [
          {label: "UTC", value: (_, at) => at === null ? "–" : clock(at)},
          ...given[chart].map((each, index) => ({
            label: each.label, stroke: lines[index], width: 1.5, value: shown, spanGaps: true,
            points: {show: given.at.length < 3},
          })),
        ],
      };
      return {chart, place, plot: new uPlot(options, data(given, chart), place)};
    });
  };

  const update = () => {
    const given = figures();
    if (given === null) return;
    if (plots.length === 0 || given.at.length < 4) draw();
    else plots.forEach(({chart, plot}) => plot.setData(data(given, chart)));
  };

  draw();
  dark.addEventListener("change", draw);
  document.addEventListener("htmx:afterSwap", update);
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => plots.forEach(({place, plot}) =>
      plot.setSize({width: place.clientWidth, height: HEIGHT})), 100);
  });
})();
