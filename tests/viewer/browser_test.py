#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The viewer in a headless Chromium: it opens from disk, every tab draws, filter, keys and pointer work, hostile names
stay text, nothing is on the console and no request leaves the page, and a million events stay fluid. First
argument: the program. Exits with 77 where there is no Chromium."""
import subprocess
import unittest

from viewer_support import FOLDER, INK, TABS, TINFER, ViewerCase, main, synthetic, trace


class Viewer(ViewerCase):
    def test_every_tab_draws(self):
        for kind in ("dense", "experts"):
            self.open(kind)
            names = self.page.run("[...document.querySelectorAll('[role=tab]')].map(t => t.textContent)")
            self.assertEqual(names, ["Timeline", "Heat map", "Layers", "Tensors", "Experts", "Roofline", "Graph"])
            for tab in TABS:
                with self.subTest(kind=kind, tab=tab):
                    self.tab(tab)
                    self.assertEqual(self.page.run("document.querySelector('[aria-selected=true]').id"), f"tab-{tab}")
                    self.picture(f"{kind}-{tab}")
                    if tab in ("layers", "tensors"):
                        self.assertGreater(self.page.run("document.querySelectorAll('#stage td').length"), 100)
                    elif tab == "experts" and kind == "dense":
                        self.assertIn("This model has no experts", self.text("#stage"))
                    else:
                        colours, ink = self.page.run(INK)
                        self.assertGreater(colours, 8)
                        self.assertGreater(ink, 0.02)

    def test_dark(self):
        self.page.dark(True)
        try:
            self.open("dense")
            self.assertEqual(self.page.run("getComputedStyle(document.body).backgroundColor"), "rgb(17, 21, 27)")
            self.assertGreater(self.page.run(INK)[1], 0.02)
            self.page.run("document.getElementById('theme').click()")
            self.page.frames(3)
            self.assertEqual(self.page.run("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
        finally:
            self.page.dark(False)

    def test_answers_are_in_sight_on_narrow_screens(self):
        def size(width):
            self.page.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
                           mobile=False)
            self.page.frames(3)

        try:
            for width in (800, 1280):
                size(width)
                self.open("experts")
                # labels of the findings are whole: "layer 3, expert 42" without its end says nothing
                self.assertEqual(self.page.run(
                    "[...document.querySelectorAll('#details .bar-row > *')].filter(e => e.scrollWidth > "
                    "e.clientWidth + 1 && e.textContent).map(e => e.textContent)"), [])
                right = ("(name => [...document.querySelectorAll('#stage th')].find(e => "
                         "e.textContent.startsWith(name)).getBoundingClientRect().right)")
                edge = self.page.run("document.getElementById('stage').getBoundingClientRect().right")
                self.tab("layers")
                self.assertLessEqual(self.page.run(f"{right}('sum')"), edge)
                self.assertIn("slowest", self.text("#stage .slowest .total"))
                self.tab("tensors")
                for column in ("time", "in a run"):
                    self.assertLessEqual(self.page.run(f"{right}('{column}')"), edge)
        finally:
            size(1440)

    def test_header_says_coverage_and_drops(self):
        self.open("dense")
        self.assertIn("coverage: all 201 weights read", self.text("#badges"))
        self.assertIn("0 dropped", self.text("#badges"))
        self.assertIn("TinyLlama", self.text("#model"))

    def test_what_a_hook_missed_is_seen(self):
        self.open("hook")
        self.assertIn("coverage: 20 of 201 weights read", self.text("#badges"))
        self.tab("layers")
        self.assertIn("181 weights MISSING", self.text("#layers-legend"))
        row = self.text("#stage tbody tr:nth-child(23)")   # the model's own row, then layers 0 to 21
        self.assertEqual(row.split()[0], "21")
        self.assertEqual(row.count("MISSING"), 6 - 1)      # attn_norm, attn, attn_out, ffn_norm, ffn
        self.picture("hook-layers")

    def test_answers(self):
        self.open("experts")
        found = self.text("#details")
        self.assertRegex(found, r"(?i)slowest layer\s+Layer 5 takes")
        self.assertRegex(found, r"(?i)hot experts\s+\d+ of .*\s+layer \d+, expert (7|42)\n")
        self.assertRegex(found, r"(?i)where threads wait\s+[\d.]+ %")
        self.assertRegex(found, r"more than 20 % waiting: attention")
        self.open("hostile")
        self.assertIn("by get_rows and mul_mat in every run", self.text("#details"))   # the tied matrix

    def test_filter(self):
        self.open("dense")
        whole = self.kernels()
        self.assertEqual(whole, 12 * 334)   # the phase with most time; a filter that names phases chooses itself
        for text, expected in (("layer:5", 12 * 15), ("layer:3-7 part:ffn", 12 * 5 * 4),
                               ("op:attention phase:decode,prefill", 13 * 22), ("phase:*", 13 * 334),
                               ("tensor:*ffn_down*", 12 * 22), ("-phase:decode", 334), ("run:3-10 kernel:rms*", 8 * 45),
                               ("run:0", 334), ("type:Q6_K", 12 * 23),
                               ("layer:none", 12 * 4), ("rope", 12 * 45)):
            with self.subTest(text=text):
                self.filter(text)
                self.assertEqual(self.kernels(), expected)
                self.assertEqual(self.text("#filter-note"), "")
        self.filter("lair:5")
        self.assertIn('no key "lair"', self.text("#filter-note"))
        self.filter("layer:x")
        self.assertIn("is no number", self.text("#filter-note"))
        self.filter("layer:5 op:mul_mat")
        self.page.run("new Promise(done => setTimeout(done, 300))")
        self.assertIn("filter=layer%3A5%20op%3Amul_mat", self.page.run("location.hash"))
        self.filter("")
        self.assertEqual(self.kernels(), whole)

    def test_fragment(self):
        self.open("dense", "#tab=tensors&filter=layer%3A2")
        self.assertEqual(self.page.run("document.querySelector('[aria-selected=true]').id"), "tab-tensors")
        self.assertEqual(self.kernels(), 12 * 15)
        self.assertEqual(self.text("#tensor-count"), "11 of 245 tensors")   # nine weights and two caches

    def test_keys(self):
        self.open("dense")
        self.page.run("document.activeElement.blur()")
        for number, tab in enumerate(TABS, 1):
            self.page.key(str(number))
            self.assertEqual(self.page.run("document.querySelector('[aria-selected=true]').id"), f"tab-{tab}")
        self.page.run("document.querySelector('[aria-selected=true]').focus()")
        self.page.key("ArrowLeft")
        self.assertEqual(self.page.run("document.activeElement.id"), "tab-roofline")
        self.page.key("ArrowRight")
        self.page.key("ArrowRight")
        self.assertEqual(self.page.run("document.activeElement.id"), "tab-timeline")
        self.page.run("document.activeElement.blur()")
        self.page.key("w")
        self.page.key("w")
        self.page.key("d")
        self.page.key("ArrowRight")
        self.assertIn("kernel", self.text("#details"))
        first = self.text("#details")
        self.page.key("]")
        self.assertNotEqual(self.text("#details"), first)
        self.assertEqual(self.text("#details h2"), first.splitlines()[0])       # the same step in the next run
        self.page.key("[")
        self.assertEqual(self.text("#details"), first)
        self.page.key("f")
        self.page.key("m")
        self.page.key("t")
        self.assertGreater(self.page.run("document.querySelectorAll('#table tbody tr').length"), 0)
        self.page.key("t")
        self.page.run("new Promise(done => setTimeout(done, 300))")
        self.assertRegex(self.page.run("location.hash"), r"tab=timeline&view=\d+-\d+&marks=\d+&pin=event,\d+,\d+$")
        self.page.key("0")
        self.page.key("Escape")
        self.assertIn("Findings", self.text("#details"))
        self.page.key("/")
        self.assertEqual(self.page.run("document.activeElement.id"), "filter")
        self.page.key("Escape")
        self.assertNotEqual(self.page.run("document.activeElement.id"), "filter")
        self.page.key("?")
        self.assertTrue(self.page.run("document.getElementById('help').open"))
        self.page.key("Escape")

    def test_pointer(self):
        self.open("dense")
        box = self.page.run("(b => [b.left, b.top, b.width, "
                            "b.height])(document.querySelector('#overview').getBoundingClientRect())")
        x = lambda share: box[0] + 84 + share * (box[2] - 98)
        self.page.drag([(x(0.6), box[1] + 20), (x(0.7), box[1] + 20), (x(0.8), box[1] + 20)])
        self.assertIn("selected", self.text("#status"))
        part = self.kernels()
        self.assertGreater(part, 334)
        self.assertLess(part, 12 * 334 // 2)
        for tab in TABS:
            self.tab(tab)
        self.page.key("Escape")
        self.assertIn("whole session", self.text("#status"))
        self.tab("timeline")
        stage = self.page.run("(b => [b.left, b.top, b.width, "
                              "b.height])(document.querySelector('#stage').getBoundingClientRect())")
        self.page.click(stage[0] + 600, stage[1] + stage[3] * 0.42)          # the lane of steps
        self.assertIn("READS AND WRITES", self.text("#details").upper())
        self.assertNotRegex(self.text("#details"), r"(reads|writes) 0 B")    # values have sizes too
        self.page.mouse("mouseMoved", stage[0] + 640, stage[1] + stage[3] * 0.42)
        self.assertIn("GB/s", self.text("#tip"))
        before = self.page.run(INK)
        self.page.mouse("mouseWheel", stage[0] + 600, stage[1] + 200, deltaX=0, deltaY=-400)
        self.page.frames(3)
        self.assertNotEqual(self.page.run(INK), before)
        self.tab("tensors")
        self.page.run("[...document.querySelectorAll('#stage th button')].find(b => "
                      "b.textContent.startsWith('size')).click()")
        self.page.frames(3)
        self.assertTrue(self.text("#stage tbody tr").startswith("output.weight"))

    def test_tables_stand_for_pictures(self):
        self.open("experts", "#table=1")
        for tab in ("timeline", "heat", "experts", "roofline", "graph"):
            with self.subTest(tab=tab):
                self.page.run(f"document.getElementById('tab-{tab}').click()")
                self.page.frames(3)
                self.assertGreater(self.page.run("document.querySelectorAll('#table tbody tr').length"), 5)

    def test_hostile_names_stay_text(self):
        self.open("hostile")
        before = self.page.run("document.querySelectorAll('script').length")
        for tab in TABS:
            self.tab(tab)
        self.tab("tensors")
        self.assertIn('<script>document.title="owned"</script>', self.text("#stage"))
        self.assertIn("\\u202eright to left", self.text("#stage"))
        for _ in range(8):
            self.page.run("document.querySelector('#stage .rows').focus()")
            self.page.key("ArrowDown")
            self.page.key("Enter")
        self.assertNotEqual(self.page.run("document.title"), "owned")
        self.assertEqual(self.page.run("document.querySelectorAll('script').length"), before)
        self.assertEqual(self.page.run("document.querySelectorAll('img, iframe, object, embed').length"), 0)

    def test_empty_page_takes_files(self):
        out = FOLDER / "empty.html"
        subprocess.run([TINFER, "trace", "view", "-o", out], check=True)
        self.page.open(out.as_uri())
        self.page.frames()
        self.assertIn("Drop a .tntrace file here", self.text("#drop"))
        wrong = FOLDER / "wrong.tntrace"
        wrong.write_bytes(b"GGUF" + bytes(500))
        self.page.choose_file("#file", wrong)
        self.page.wait("document.getElementById('drop-error').textContent")
        self.assertIn("not a trace", self.text("#drop-error"))
        cut = FOLDER / "cut.tntrace"
        data = trace("dense").read_bytes()
        cut.write_bytes(data[:len(data) // 2])
        self.page.choose_file("#file", cut)
        self.page.wait("document.getElementById('drop').hidden")
        self.page.frames(3)
        self.assertIn("the file ends inside a block", self.text("#details"))
        example = FOLDER / "example.tntrace"
        example.write_bytes(synthetic.worked_example())
        self.page.choose_file("#file", example)
        self.page.wait("document.getElementById('model').textContent === 'example.tntrace'")
        for tab in TABS:
            self.page.run(f"document.getElementById('tab-{tab}').click()")
            self.page.frames(3)
        self.assertIn("0 events", self.text("#badges"))

    def test_million_events_stay_fluid(self):
        self.open("million")
        self.assertIn("1 000 330 events", self.text("#badges").replace("\u202f", " "))
        # at every zoom a lane draws at most one rectangle a pixel column (a thread's lane two: busy, waiting)
        counted = self.page.run("""(async () => {
            const proto = CanvasRenderingContext2D.prototype, real = proto.fillRect, out = [];
            const canvas = document.querySelector('#stage > canvas'), box = canvas.getBoundingClientRect();
            for (let i = 0; i < 40; ++i) {
                let rectangles = 0;
                proto.fillRect = function (...at) {
                    if (this.canvas === canvas) ++rectangles;
                    return real.apply(this, at);
                };
                canvas.dispatchEvent(new WheelEvent('wheel', {
                    deltaY: i < 30 ? -100 : 100, clientX: box.left + 500, clientY: box.top + 200, cancelable: true}));
                const start = performance.now();
                await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
                out.push([rectangles, performance.now() - start]);
            }
            proto.fillRect = real;
            return [box.width, out];
        })()""")
        width, frames = counted
        self.assertGreater(min(n for n, _ in frames), 5)
        self.assertLess(max(n for n, _ in frames), (4 + 2 * 2) * width + 100)
        print("a million events: two frames in %.1f ms, median of 40 zooms" % sorted(ms for _, ms in frames)[20])
        memory = self.page.run("performance.memory.usedJSHeapSize") / 1e6
        self.assertLess(memory, 400)
        for tab in TABS:
            self.tab(tab)
            self.assertLess(self.page.run("document.querySelectorAll('*').length"), 3000)   # no element per event
        self.filter("part:attn layer:3-9")
        self.assertEqual(self.kernels(), 2994 * 7 * 7)   # the runs of decode


if __name__ == "__main__":
    main()
