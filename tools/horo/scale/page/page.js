'use strict';
// The pictures and tables of horo scale. Every text of a user goes through textContent: it is never markup.
(() => {
  const data = JSON.parse(document.getElementById('scale').textContent);
  const SVG = 'http://www.w3.org/2000/svg';
  const sizes = data.table;
  const last = sizes.length > 0 ? sizes[sizes.length - 1] : null;
  const unit = {'samples': 'samples/s', 'steps of a rank': 'rank steps/s'}[data.unit] || 'steps/s';
  const WAITS = new Set(['skew', 'agreement', 'transfer', 'copies', 'commit', 'hand_over', 'membership']);
  const DEFINITIONS = [
    ['efficiency', 'rank-seconds for each sample with the smallest number of ranks, over those with this number'],
    ['skew', 'a rank waits for the rank that is ready last'],
    ['transfer', 'bytes move and are added up while the training thread waits; hidden transfer happens while it does not'],
    ['agreement', 'all ranks are ready, and the release of the collective is on its way'],
    ['input', 'the next batch is made'],
    ['slower compute', 'forward, backward, after backward and optimizer take longer than with the smallest number of ranks'],
    ['other', 'between, checkpoint, copies, commit, hand-over and membership'],
  ];

  // ---- elements and numbers
  const fill = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    for (const child of children) element.append(child);
    return element;
  };
  const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
  const at = (id) => document.getElementById(id);
  const words = (name) => name.replaceAll('_', ' ');
  // As the terminal shows them: a control character has no picture.
  const visible = (text) =>
    text.replace(/[\u0000-\u001f\u007f-\u009f]/g, (one) => '\\x' + one.charCodeAt(0).toString(16).padStart(2, '0'));
  const count = (number, noun) => number + ' ' + noun + (number === 1 ? '' : 's');
  const decimalsOf = (ns) => (ns >= 1e7 ? 1 : ns >= 1e6 ? 2 : 3);
  const ms = (ns, decimals = decimalsOf(Math.abs(ns))) => (ns / 1e6).toFixed(decimals);
  const tenths = (value) => (value / 10).toFixed(1).replace('-', '\u2212');
  const grouped = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ',');
  const rate = (milli) => (milli >= 1e5 ? grouped(Math.round(milli / 1000)) : (milli / 1000).toFixed(milli >= 1e4 ? 1 : 2));
  // Integers next to values / divisor that add up to the total: what is left goes to the largest remainders.
  const shares = (values, divisor, total) => {
    const down = values.map((value) => Math.floor(value / divisor));
    const order = values.map((value, i) => [value - down[i] * divisor, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    const left = total - down.reduce((sum, value) => sum + value, 0);
    for (let i = 0; i < left && i < order.length; ++i) ++down[order[i][1]];
    return down;
  };
  const efficiencyTenths = (size) => Math.round((size.ideal_ns * 1000) / size.step_ns);
  const lossTenths = (size) => {
    const names = Object.keys(size.lost_ns);
    const values = names.map((name) => (size.lost_ns[name] || 0) * 1000);
    const parts = shares(values, size.step_ns, 1000 - efficiencyTenths(size));
    return new Map(names.map((name, i) => [name, size.lost_ns[name] === null ? null : parts[i]]));
  };
  const ceilNice = (value) => {
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((nice) => nice >= value * 0.999);
  };
  const ticksTo = (most) => {
    const step = ceilNice(most / 5);
    const ticks = [];
    for (let tick = 0; tick <= most * 1.0001; tick += step) ticks.push(Number(tick.toPrecision(6)));
    return ticks;
  };
  const label = (x, y, text, attributes = {}) => {
    const element = svg('text', {x, y, ...attributes});
    element.textContent = text;
    return element;
  };
  const picture = (height, description) =>
    svg('svg', {viewBox: '0 0 960 ' + height, role: 'img', 'aria-label': description});
  // About the width of a text of 12 px.
  const widthOf = (text) => text.length * 6.6;

  // ---- a row of parts, with their names inside where they fit
  const rowOfParts = (parts, y, height, xOf) => {
    const group = svg('g');
    let sum = 0;
    for (const part of parts) {
      const x = xOf(sum), width = xOf(sum + part.value) - x;
      sum += part.value;
      if (width < 0.2) continue;
      const inset = Math.min(0.75, width / 4);
      group.append(svg('rect', {
        x: x + inset, y, width: width - 2 * inset, height, rx: Math.min(2, width / 3), class: part.kind, 'data-tip': part.tip,
      }));
      const text = part.labels.find((one) => widthOf(one) + 8 <= width);
      if (text) group.append(label(x + width / 2, y + height / 2 + 4, text, {class: 'on-bar', 'text-anchor': 'middle'}));
    }
    return group;
  };

  // ---- what is lost: one row for each size
  const drawLosses = () => {
    const top = 4, step = 34, left = 76, right = 950;
    const image = picture(top + step * sizes.length + 22, 'Efficiency and losses by number of ranks');
    const xOf = (thousandths) => left + ((right - left) * thousandths) / 1000;
    for (const tick of [0, 200, 400, 600, 800, 1000]) {
      const bottom = top + step * sizes.length;
      image.append(svg('line', {x1: xOf(tick), x2: xOf(tick), y1: top, y2: bottom, class: 'grid'}));
      const isLast = tick === 1000;
      image.append(label(isLast ? 958 : xOf(tick), bottom + 16, tick / 10 + (isLast ? ' %' : ''),
        {class: 'soft', 'text-anchor': isLast ? 'end' : 'middle'}));
    }
    sizes.forEach((size, i) => {
      const y = top + i * step + 4, kept = efficiencyTenths(size);
      const losses = [...lossTenths(size)].filter(([, value]) => value > 0);
      // Gains make the losses add up to more than what is missing: they are drawn to scale of the rest.
      const all = losses.reduce((sum, [, value]) => sum + value, 0);
      const scale = kept + all > 1000 ? Math.max(0, 1000 - kept) / all : 1;
      const parts = [{
        value: Math.min(kept, 1000), kind: 'kept', labels: [tenths(kept) + ' % efficient', tenths(kept) + ' %', tenths(kept)],
        tip: count(size.ranks, 'rank') + '\nefficiency ' + tenths(kept) + ' %',
      }];
      for (const [name, value] of losses) {
        parts.push({
          value: value * scale, kind: name, labels: [name + ' ' + tenths(value), name, tenths(value)],
          tip: count(size.ranks, 'rank') + '\n' + name + ' ' + tenths(value) + ' % of the step, ' + ms(size.lost_ns[name]) + ' ms',
        });
      }
      image.append(label(left - 10, y + 17, count(size.ranks, 'rank'), {'text-anchor': 'end'}));
      image.append(rowOfParts(parts, y, step - 8, xOf));
    });
    at('losses-picture').replaceChildren(image);
  };

  const key = (kind) => html('span', {class: 'key'}, svg('svg', {}, svg('rect', {width: '100%', height: '100%', class: kind})));
  const head = (text, kind) => (kind ? html('th', {scope: 'col'}, key(kind), text) : html('th', {scope: 'col'}, text));

  const tableOfLosses = () => {
    const names = Object.keys(last.lost_ns);
    const row = html('tr', {}, head('ranks'), head(unit), head('efficiency, %'), head('step, ms'));
    for (const name of names) row.append(head(name, name));
    const body = html('tbody');
    for (const size of sizes) {
      const isBase = size === sizes[0];
      const efficiency = html('td', {class: 'strong', 'data-ppm': size.efficiency_ppm}, tenths(efficiencyTenths(size)));
      if (!isBase) {
        const range = size.interval_ppm.map((ppm) => tenths(Math.round(ppm / 1000))).join('–');
        efficiency.append(html('span', {class: 'range'}, range));
      }
      const line = html('tr', {'data-ranks': size.ranks, 'data-ideal-ns': size.ideal_ns},
        html('td', {}, String(size.ranks)), html('td', {}, rate(size.rate_milli)), efficiency,
        html('td', {'data-step-ns': size.step_ns}, ms(size.step_ns)));
      const parts = lossTenths(size);
      for (const name of names) {
        const ns = size.lost_ns[name], text = isBase ? '–' : ns === null ? 'n/a' : tenths(parts.get(name));
        line.append(html('td', {'data-lost-ns': ns === null ? 0 : ns, title: ns === null ? 'not known' : ms(ns) + ' ms'}, text));
      }
      body.append(line);
    }
    at('losses').replaceChildren(html('thead', {}, row), body);
  };

  // ---- throughput
  const drawRate = () => {
    const left = 76, right = 884, top = 14, bottom = 250;
    const image = picture(290, 'Throughput by number of ranks, measured and ideal');
    const base = sizes[0], mostRanks = last.ranks;
    const idealOf = (ranks) => (base.rate_milli * ranks) / base.ranks;
    const most = Math.max(idealOf(mostRanks), ...sizes.map((size) => size.rate_milli)) / 1000;
    const xOf = (ranks) => left + ((right - left) * ranks) / mostRanks;
    const yOf = (value) => bottom - ((bottom - top) * value) / most;
    for (const tick of ticksTo(most)) {
      image.append(svg('line', {x1: left, x2: right, y1: yOf(tick), y2: yOf(tick), class: tick === 0 ? 'axis' : 'grid'}));
      image.append(label(left - 10, yOf(tick) + 4, grouped(tick), {class: 'soft', 'text-anchor': 'end'}));
    }
    image.append(svg('line', {x1: xOf(0), y1: yOf(0), x2: xOf(mostRanks), y2: yOf(idealOf(mostRanks) / 1000), class: 'ideal'}));
    const line = sizes.map((size) => xOf(size.ranks) + ',' + yOf(size.rate_milli / 1000)).join(' ');
    image.append(svg('polyline', {points: line, class: 'measured'}));
    for (const size of sizes) {
      const x = xOf(size.ranks), ideal = idealOf(size.ranks) / 1000;
      const [low, high] = size.interval_ppm.map((ppm) => yOf((ideal * ppm) / 1e6));
      image.append(svg('line', {x1: x, x2: x, y1: low, y2: high, class: 'whisker'}));
      image.append(svg('circle', {
        cx: x, cy: yOf(size.rate_milli / 1000), r: 5, class: 'point',
        'data-tip': count(size.ranks, 'rank') + '\n' + rate(size.rate_milli) + ' ' + unit + '\nideal ' + rate(idealOf(size.ranks)),
      }));
      image.append(label(x, bottom + 18, String(size.ranks), {class: 'soft', 'text-anchor': 'middle'}));
    }
    image.append(label((left + right) / 2, bottom + 36, 'ranks', {class: 'soft', 'text-anchor': 'middle'}));
    image.append(label(right + 8, yOf(idealOf(mostRanks) / 1000) + 4, 'ideal', {class: 'soft'}));
    const gap = yOf(last.rate_milli / 1000) - yOf(idealOf(mostRanks) / 1000);
    image.append(label(right + 12, yOf(last.rate_milli / 1000) + (Math.abs(gap) < 14 ? 18 : 4), 'measured'));
    image.append(label(left, top - 4, unit, {class: 'soft', 'text-anchor': 'end', dx: -10}));
    at('rate-picture').replaceChildren(image);
  };

  // ---- where a step goes: one row for each rank
  const drawSteps = (size) => {
    const left = 76, right = 950, step = size.by_rank.length > 16 ? 18 : 30, top = 4;
    const bottom = top + step * size.by_rank.length;
    const image = picture(bottom + 22, 'The parts of a step by rank');
    const most = Math.max(...size.by_rank.map((rank) => rank.step_ns)) / 1e6;
    const xOf = (value) => left + ((right - left) * value) / most;
    const ticks = ticksTo(most);
    for (const tick of ticks) {
      image.append(svg('line', {x1: xOf(tick), x2: xOf(tick), y1: top, y2: bottom, class: 'grid'}));
      const isLast = tick === ticks[ticks.length - 1];
      image.append(label(xOf(tick), bottom + 16, grouped(tick) + (isLast ? ' ms' : ''), {class: 'soft', 'text-anchor': 'middle'}));
    }
    for (const [i, rank] of size.by_rank.entries()) {
      const y = top + i * step + 3;
      const parts = Object.entries(rank.bars_ns).filter(([, ns]) => ns > 0).map(([name, ns]) => ({
        value: ns / 1e6, kind: name, labels: [words(name) + ' ' + ms(ns, decimalsOf(rank.step_ns)), words(name)],
        tip: 'rank ' + rank.rank + '\n' + words(name) + ' ' + ms(ns, decimalsOf(rank.step_ns)) + ' ms'
          + (WAITS.has(name) ? ', waiting' : ''),
      }));
      image.append(label(left - 10, y + step / 2 + 1, 'rank ' + rank.rank, {'text-anchor': 'end'}));
      image.append(rowOfParts(parts, y, step - 6, xOf));
    }
    at('steps-picture').replaceChildren(image);
    const hidden = size.hidden_transfer_ns, exposed = size.bars_ns.transfer || 0;
    at('beside').textContent = hidden * 1000 >= size.step_ns
      ? 'Hidden transfer: ' + ms(hidden) + ' ms of a step, ' + Math.round((100 * hidden) / (hidden + exposed)) + ' % of all transfer.'
      : '';
    tableOfBars(size);
  };

  const tableOfBars = (size) => {
    const names = Object.keys(size.bars_ns).filter((name) => size.by_rank.some((rank) => rank.bars_ns[name] !== 0));
    const row = html('tr', {}, head('ms'));
    for (const name of names) row.append(head(words(name), name));
    row.append(head('step'));
    const body = html('tbody');
    for (const rank of size.by_rank) {
      const decimals = decimalsOf(rank.step_ns), grain = 10 ** (6 - decimals);
      const all = Object.keys(rank.bars_ns);
      const parts = shares(all.map((name) => rank.bars_ns[name] || 0), grain, Math.round(rank.step_ns / grain));
      const line = html('tr', {'data-rank': rank.rank}, html('td', {}, 'rank ' + rank.rank));
      for (const name of names) {
        const ns = rank.bars_ns[name];
        const text = ns === null ? 'n/a' : (parts[all.indexOf(name)] / 10 ** decimals).toFixed(decimals);
        line.append(html('td', {'data-bar-ns': ns === null ? 0 : ns}, text));
      }
      line.append(html('td', {class: 'strong', 'data-step-ns': rank.step_ns}, ms(rank.step_ns, decimals)));
      body.append(line);
    }
    at('bars').replaceChildren(html('thead', {}, row), body);
  };

  // ---- which rank is late: a row for each rank, a column for each step
  const drawLate = (size) => {
    const rows = size.lateness.caused_ns, late = size.late;
    const most = Math.max(0, ...rows.flat());
    let text = 'The others waited for no rank that is known.';
    if (most > 0) {
      text = 'Waiting of the other ranks that each rank has caused, by step; the last ' + rows[0].length +
        ' steps with ' + count(size.ranks, 'rank') + '. Full height: ' + ms(most) + ' ms.';
    }
    if (late) text = late.text + '. ' + text;
    at('late-lead').textContent = text;
    if (most === 0) return at('late-picture').replaceChildren();
    const left = 76, right = 950, step = Math.max(14, Math.min(34, 420 / rows.length)), top = 2;
    const image = picture(top + step * rows.length + 20, 'Skew that each rank has caused, by step');
    const width = (right - left) / rows[0].length;
    rows.forEach((row, rank) => {
      const y = top + rank * step, high = step - 4;
      image.append(label(left - 10, y + step / 2 + 2, 'rank ' + rank, {'text-anchor': 'end'}));
      image.append(svg('rect', {x: left, y, width: right - left, height: high, class: 'cell-back'}));
      row.forEach((ns, i) => {
        if (ns <= 0) return;
        const height = Math.max(1, (high * ns) / most);
        image.append(svg('rect', {
          x: left + i * width, y: y + high - height, width: width - Math.min(2, 0.2 * width), height, class: 'late-cell',
          'data-tip': 'step ' + (size.lateness.first_step + i) + '\nrank ' + rank + ' caused ' + ms(ns) + ' ms of waiting',
        }));
      });
    });
    const bottom = top + step * rows.length + 14;
    image.append(label(left, bottom, 'step ' + size.lateness.first_step, {class: 'soft'}));
    image.append(label(right, bottom, 'step ' + (size.lateness.first_step + rows[0].length - 1), {class: 'soft', 'text-anchor': 'end'}));
    at('late-picture').replaceChildren(image);
  };

  // ---- the page
  const script = () => {
    const dashes = data.command.indexOf('--');
    const program = data.command.slice(dashes + 1);
    const name = program.find((word) => word.endsWith('.py')) || program.join(' ');
    return visible(name.startsWith('/') ? name.split('/').pop() : name);
  };

  const showHeader = () => {
    at('title').textContent = script();
    document.title = script() + ' · horo scale';
    at('summary').textContent = last
      ? count(last.ranks, 'rank') + ', ' + tenths(efficiencyTenths(last)) + ' % efficient, ' + rate(last.rate_milli) + ' ' + unit
      : 'nothing could be measured';
    if (last && sizes.length > 1) {
      const parts = [...lossTenths(last)].filter(([, value]) => value).sort((a, b) => b[1] - a[1]);
      at('lost').textContent = tenths(1000 - efficiencyTenths(last)) + ' % lost: ' +
        parts.map(([name, value]) => name + ' ' + tenths(value)).join(' · ');
    }
    at('notes').replaceChildren(...data.notes.map((note) => html('li', {}, visible(note))));
  };

  const define = (id, pairs) => {
    for (const [name, text] of pairs) at(id).append(html('dt', {}, name), html('dd', {}, text));
  };

  const choose = (size) => {
    for (const button of at('sizes').children) button.setAttribute('aria-pressed', String(button.value === String(size.ranks)));
    drawSteps(size);
    drawLate(size);
  };

  const showTips = () => {
    const tip = at('tip');
    document.addEventListener('pointermove', (event) => {
      const text = event.target instanceof Element ? event.target.getAttribute('data-tip') : null;
      tip.hidden = !text;
      if (!text) return;
      tip.textContent = text;
      const box = tip.getBoundingClientRect();
      tip.style.left = Math.min(event.clientX + 14, innerWidth - box.width - 8) + 'px';
      tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + 'px';
    });
  };

  showHeader();
  const scaling = data.plan.is_strong ? 'strong scaling' : 'weak scaling';
  define('definitions', DEFINITIONS);
  define('machine', [
    ['command', visible(data.command.join(' '))],
    ['machine', data.machine.model + ', ' + count(data.machine.cores, 'core') + ', ' + data.machine.kernel],
    ['version', 'horo ' + data.horo],
    ['runs', count(data.plan.rounds, 'round') + ' of ' + data.plan.run_ns / 1e9 + ' s behind a warm-up of ' +
      data.plan.warm_up_steps + ' steps and ' + data.plan.warm_up_ns / 1e9 + ' s; ' +
      count(data.plan.cores_of_rank, 'core') + ' for each rank; ' + scaling],
    ['started', new Date(data.started_s * 1000).toISOString().replace('T', ' ').replace('.000Z', ' UTC')],
  ]);
  at('data').textContent = JSON.stringify(data, null, 1);
  if (last) {
    at('losses-lead').textContent = 'In percent of the step; with the efficiency they add up to 100. A loss below 0 is a gain. ' +
      (sizes.length > 1 ? 'The range is the middle 95 % of 1,000 resamplings.' : '');
    drawLosses();
    tableOfLosses();
    if (sizes.length > 1) drawRate();
    else at('rate-part').hidden = true;
    for (const size of sizes) {
      const button = html('button', {type: 'button', value: size.ranks}, count(size.ranks, 'rank'));
      button.addEventListener('click', () => choose(size));
      at('sizes').append(button);
    }
    choose(last);
    showTips();
  } else {
    for (const part of ['losses-part', 'rate-part', 'steps-part', 'late-part']) at(part).hidden = true;
  }
  document.documentElement.dataset.ready = 'yes';
})();
