// SPDX-License-Identifier: MIT
// Many events, few pixels: a pyramid (factor 4) per lane, and the bins of the heat map. Pure functions over typed
// arrays; those of the heat map also run in a worker, which is created from their source text.

/** Levels above a lane of intervals: begin, end, time in it (cover), and the colour that has most of the time. */
function buildPyramid(begin, end, colour, count) {
    let level = {begin, end, colour, count, cover: null};
    const levels = [level],
        time = new Float64Array(4);
    while (level.count > 64) {
        const n = Math.ceil(level.count / 4);
        const next = {
            begin: new Float64Array(n),
            end: new Float64Array(n),
            colour: new Uint8Array(n),
            count: n,
            cover: new Float64Array(n)
        };
        for (let i = 0; i < n; ++i) {
            const first = 4 * i,
                some = Math.min(4, level.count - first);
            let cover = 0,
                best = 0,
                most = -1,
                high = 0;
            for (let k = 0; k < some; ++k) {
                const at = first + k;
                time[k] = level.cover ? level.cover[at] : level.end[at] - level.begin[at];
                cover += time[k];
                if (level.end[at] > high) high = level.end[at];
                for (let j = 0; j < k; ++j)
                    if (level.colour[first + j] === level.colour[at]) {
                        time[j] += time[k]; // sums the time of a colour in its first entry
                        break;
                    }
            }
            for (let k = 0; k < some; ++k)
                if (time[k] > most) {
                    most = time[k];
                    best = level.colour[first + k];
                }
            next.begin[i] = level.begin[first];
            next.end[i] = high;
            next.colour[i] = best;
            next.cover[i] = cover;
        }
        levels.push((level = next));
    }
    return {levels, share: null};
}

/** The same intervals of which only shares are busy: shares the other's columns and adds busy time. */
function sharePyramid(base, share) {
    const levels = base.levels.map(level => ({...level, busy: null}));
    for (let l = 1; l < levels.length; ++l) {
        const below = levels[l - 1],
            busy = new Float64Array(levels[l].count);
        for (let k = 0; k < below.count; ++k)
            busy[k >> 2] += below.busy ? below.busy[k] : (below.end[k] - below.begin[k]) * share[k];
        levels[l].busy = busy;
    }
    return {levels, share};
}

/** The finest level that has at most `most` intervals between two times: {level, from, to}. */
function pickLevel(pyramid, t0, t1, most) {
    for (let l = 0; ; ++l) {
        const level = pyramid.levels[l];
        let from = lowerBound(level.begin, level.count, t0);
        if (from > 0 && level.end[from - 1] > t0) --from;
        const to = lowerBound(level.begin, level.count, t1);
        if (to - from <= most || l === pyramid.levels.length - 1) return {level, from, to, number: l};
    }
}

/** One value per pixel column: time covered, time busy, colour with most of it. */
function lanePixels(pyramid, t0, t1, width, out) {
    const {level, from, to, number} = pickLevel(pyramid, t0, t1, width * 4),
        scale = width / (t1 - t0);
    out.cover.fill(0, 0, width);
    out.busy.fill(0, 0, width);
    out.best.fill(0, 0, width);
    out.colour.fill(0, 0, width);
    for (let i = from; i < to; ++i) {
        const begin = (level.begin[i] - t0) * scale,
            end = (level.end[i] - t0) * scale,
            size = end - begin;
        const cover = level.cover ? level.cover[i] * scale : size;
        const busy = level.busy ? level.busy[i] * scale : size * (pyramid.share ? pyramid.share[i] : 1);
        const a = Math.max(0, Math.floor(begin)),
            b = Math.min(width - 1, Math.floor(end));
        for (let x = a; x <= b; ++x) {
            const part = size > 0 ? (Math.min(end, x + 1) - Math.max(begin, x)) / size : 1;
            if (part <= 0) continue;
            out.cover[x] += cover * part;
            out.busy[x] += busy * part;
            if (cover * part > out.best[x]) {
                out.best[x] = cover * part;
                out.colour[x] = level.colour[i];
            }
        }
    }
    return {number, from, to, level};
}

/** Adds events [from, to) to the bins of the heat map. job: columns, extents of each step as CSR (stepFirst, binRow,
    binBytes), extents from ranges (dynFirst, dynOperand, dynBase, dynSize), rows, columns, mode. */
function heatAccumulate(job, from, to) {
    const {
        step,
        begin,
        run,
        stepMask,
        runMask,
        stepFirst,
        binRow,
        binBytes,
        dynFirst,
        dynOperand,
        dynBase,
        dynScale,
        rows,
        columns,
        cells,
        last,
        state,
        byTime,
        t0,
        t1,
        run0,
        run1,
        reuse,
        rangeOperand,
        rangeOffset,
        rangeLength,
        rangePieces,
        rangeStride,
        firstRange,
        endRange,
        fixedRow
    } = job;
    const scale = byTime ? columns / (t1 - t0) : columns / (run1 - run0);
    const touch = (row, column, bytes) => {
        if (row < 0 || row >= rows || !(bytes > 0)) return;
        state[0] += bytes;
        const cell = row * columns + column;
        if (!reuse) {
            cells[cell] += bytes;
            return;
        }
        const distance = last[row] < 0 ? 0 : state[0] - bytes - last[row]; // other bytes read since the last touch
        if (distance > cells[cell]) cells[cell] = distance;
        last[row] = state[0];
    };
    for (let i = from; i < to; ++i) {
        const s = step[i],
            r = run[i];
        if (!stepMask[s] || (r < runMask.length && !runMask[r])) continue;
        const column = Math.floor(byTime ? (begin[i] - t0) * scale : (r - run0) * scale);
        if (column < 0 || column >= columns) continue;
        for (let k = stepFirst[s]; k < stepFirst[s + 1]; ++k) touch(binRow[k], column, binBytes[k]);
        for (let d = dynFirst[s]; d < dynFirst[s + 1]; ++d)
            for (let k = firstRange[i]; k < endRange[i]; ++k) {
                if (rangeOperand[k] !== dynOperand[d]) continue;
                const bytes = rangeLength[k] * (rangePieces[k] || 1);
                if (fixedRow[d] >= 0) {
                    touch(fixedRow[d], column, bytes);
                    continue;
                }
                const low = (dynBase[d] + rangeOffset[k]) * dynScale;
                const high =
                    (dynBase[d] + rangeOffset[k] + ((rangePieces[k] || 1) - 1) * rangeStride[k] + rangeLength[k]) *
                    dynScale;
                const a = Math.max(0, Math.floor(low)),
                    b = Math.min(rows - 1, Math.max(Math.floor(low), Math.ceil(high) - 1));
                for (let row = a; row <= b; ++row)
                    touch(
                        row,
                        column,
                        high > low ? (bytes * (Math.min(high, row + 1) - Math.max(low, row))) / (high - low) : bytes
                    );
            }
    }
}

/** Bins of the weights that every step reads whole, for rows by file offset or one row a tensor. */
function heatExtents(model, axis) {
    const stepFirst = new Uint32Array(model.steps.length + 1),
        binRow = [],
        binBytes = [];
    const dynFirst = new Uint32Array(model.steps.length + 1),
        dynOperand = [],
        dynBase = [],
        fixedRow = [];
    model.steps.forEach((step, s) => {
        stepFirst[s] = binRow.length;
        dynFirst[s] = dynOperand.length;
        step.operands.forEach((o, which) => {
            const t = model.trace.tensors[o.ref];
            if (o.ref >= VALUE_REF || !t || !(o.mode & READS) || o.kind === ELIDED) return;
            if (axis.mask && !axis.mask[o.ref]) return;
            if (axis.byFile && t.place < 0) return;
            const row = axis.byFile ? -1 : axis.rowOf[o.ref];
            if (!axis.byFile && row < 0) return;
            if (o.kind === DYNAMIC) {
                dynOperand.push(which);
                dynBase.push(axis.byFile ? t.place - axis.low : 0);
                fixedRow.push(row);
                return;
            }
            const offset = o.kind === 1 ? o.offset : 0,
                bytes = o.kind === 1 ? o.length * (o.count || 1) : t.bytes;
            if (row >= 0) {
                binRow.push(row);
                binBytes.push(bytes);
                return;
            }
            const low = (t.place - axis.low + offset) * axis.scale,
                high = (t.place - axis.low + offset + bytes) * axis.scale;
            // a damaged file may exceed the tensor: only existing rows
            const from = Math.max(0, Math.floor(low)),
                to = Math.min(axis.rows, Math.max(Math.floor(low) + 1, Math.ceil(high)));
            for (let y = from; y < to; ++y) {
                binRow.push(y);
                binBytes.push(high > low ? (bytes * (Math.min(high, y + 1) - Math.max(low, y))) / (high - low) : bytes);
            }
        });
    });
    stepFirst[model.steps.length] = binRow.length;
    dynFirst[model.steps.length] = dynOperand.length;
    return {
        stepFirst,
        binRow: Int32Array.from(binRow),
        binBytes: Float64Array.from(binBytes),
        dynFirst,
        dynOperand: Uint16Array.from(dynOperand),
        dynBase: Float64Array.from(dynBase),
        fixedRow: Int32Array.from(fixedRow),
        dynScale: axis.scale ?? 1
    };
}

/** Bytes moved per column of the overview strip. */
function overviewBins(model, width) {
    const e = model.trace.events,
        bins = new Float64Array(width),
        scale = width / (model.end - model.begin);
    for (let i = 0; i < e.count; ++i) {
        const a = (e.begin[i] - model.begin) * scale,
            b = (e.begin[i] + e.duration[i] - model.begin) * scale;
        const x0 = Math.max(0, Math.floor(a)),
            x1 = Math.min(width - 1, Math.floor(b));
        if (x0 === x1 || b <= a) {
            bins[Math.min(x0, width - 1)] += e.bytes[i];
            continue;
        }
        for (let x = x0; x <= x1; ++x) bins[x] += (e.bytes[i] * (Math.min(b, x + 1) - Math.max(a, x))) / (b - a);
    }
    for (let x = 0; x < width; ++x) bins[x] *= scale; // bytes a nanosecond = GB/s
    return bins;
}
