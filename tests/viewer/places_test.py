#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The viewer in a headless Chromium: phases, findings above the noise, links that open at the same place, saved
pictures, two traces, a phone. First argument: the program."""
import json
import subprocess

from viewer_support import INK, TINFER, ViewerCase, main, trace


class Places(ViewerCase):
    def test_phases_are_not_mixed(self):
        self.open("dense")
        self.assertEqual(self.text("#phases [aria-checked=true]"), "decode 61 %")   # the one with most time
        self.assertIn("Findings: decode", self.text("#details"))
        self.page.run("document.querySelector('#phases [aria-checked=false]').click()")
        self.page.frames(3)
        self.assertEqual(self.kernels(), 334)
        found = self.text("#details")
        self.assertIn("Findings: prefill", found)
        self.assertIn("1 run of prefill cannot tell a slow layer", found)
        self.assertRegex(found, r"(?i)memory-bound\?\s+No: 9\d % of kernel time \(prefill\) is bound by arithmetic")
        self.page.run("new Promise(done => setTimeout(done, 300))")
        self.assertIn("phase=prefill", self.page.run("location.hash"))
        self.page.run("document.activeElement.blur()")
        self.page.key("p")
        self.assertEqual(self.kernels(), 12 * 334)

    def test_findings_exceed_the_noise(self):
        self.open("dense")
        found = self.text("#details")
        self.assertRegex(found, r"(?i)memory-bound\?\s+Yes: (9\d|100) % of kernel time \(decode\)")
        self.assertRegex(found, r"(?i)slowest layer\s+Layer 13 takes 1\.(49|5\d) × the median of the \d+ layers")
        self.assertRegex(found, r"(?i)noise ± \d")
        self.assertRegex(found, r"(?s)head\s+\d.* % .*the head takes 1\.\d × the median layer".replace(" % .*", ".*"))
        self.assertNotIn("INTERRUPTIONS", found.upper())
        self.open("even")
        found = self.text("#details")
        self.assertRegex(found, r"(?i)slowest layer\s+No layer stands out")
        self.assertNotIn("INTERRUPTIONS", found.upper())
        self.assertNotIn("say little", found)
        self.open("paused")   # one step of 9 ms too long: no layer is slow, and the step is named
        found = self.text("#details")
        self.assertRegex(found, r"(?i)slowest layer\s+No layer stands out")
        self.assertRegex(found, r"(?i)interruptions\s+1 step took far longer than in other runs: 9\.\d+ ms")
        self.page.run("[...document.querySelectorAll('.finding')].find(e => e.innerText.startsWith('INTER') || "
                      "e.innerText.startsWith('Inter')).querySelector('button').click()")
        self.page.frames(3)
        self.assertRegex(self.text("#details"), r"takes\s+9\.\d+ ms")

    def test_times_that_say_little_answer_nothing(self):
        """A machine that had other work: the page says so above all, and neither answer is made of such times."""
        self.open("busy")
        found = self.text("#details")
        self.assertRegex(found, r"^Findings: decode\s+Hide\s+The times of this trace say little: \d+ % of the time")
        self.assertRegex(found, r"(?i)memory-bound\?\s+Cannot tell: ")
        self.assertRegex(found, r"(?i)slowest layer\s+Cannot tell: ")
        self.open("busy", "#phase=prefill")   # one run cannot tell, but those beside it can
        self.assertRegex(self.text("#details"), r"say little: in the whole trace \d+ %")
        self.assertRegex(self.text("#details"), r"(?i)memory-bound\?\s+Cannot tell: ")

    def test_the_page_counts_as_the_text_command(self):
        """Bytes, rates and bounds are those of `tinfer trace roofline` for the same trace, scratch and all."""
        def size(n):
            for unit in ("B", "KiB", "MiB", "GiB"):
                if n < 1024 or unit == "GiB":
                    return f"{n} B" if unit == "B" else f"{n:.{2 if n < 10 else 1}f} {unit}"
                n /= 1024

        for by, choice in (("op", "op"), ("kernel", "kernel"), ("part", "part")):
            text = json.loads(subprocess.run(
                [TINFER, "trace", "roofline", trace("scratch"), "--phase", "decode", "--by", by, "--json"], check=True,
                capture_output=True, text=True).stdout)
            groups = {row[by]: row for row in text["groups"]}
            self.open("scratch", f"#tab=roofline&phase=decode&table=1&tabs=roofline.by:{choice}")
            rows = self.page.run("[...document.querySelectorAll('#table tbody tr')].map(r => "
                                 "[...r.children].map(c => c.innerText))")
            self.assertEqual({row[0] for row in rows}, set(groups))
            for name, _, _, _, n_bytes, gbps, gmacs, _, bound in rows:
                of = groups[name]
                self.assertEqual(n_bytes, size(of["bytes"]), f"{by} {name}")
                self.assertAlmostEqual(float(gbps), of["gbps"], delta=0.06)
                if of["macs"]:
                    self.assertAlmostEqual(float(gmacs), of["gmacs"], delta=0.06)
                self.assertTrue(bound.startswith(of["bound"].replace("compute", "arithmetic")), (name, bound))
        phase = next(phase for phase in text["phases"] if phase["phase"] == "decode")
        bars = dict(self.page.run("[...[...document.querySelectorAll('.finding')].find(e => /bound/i.test(e.innerText))"
                                  ".querySelectorAll('.bar-row')].map(r => [r.firstChild.innerText, "
                                  "r.lastChild.innerText])"))
        for label, name in (("reading memory", "memory"), ("arithmetic", "compute"), ("neither: overhead", "overhead")):
            share = phase[name]
            self.assertEqual(bars[label], f"{100 * share:.{1 if share < 0.0995 else 0}f} %")

    def test_overhead_is_neither_roof(self):
        self.open("dense")
        self.tab("roofline")
        self.page.run("""document.querySelectorAll('#toolbar input').forEach(box => {
            box.value = 1e6; box.dispatchEvent(new Event('change')); })""")
        self.page.frames(3)
        self.assertRegex(self.text("#details"), r"No: 100 % of kernel time \(decode\) is bound by neither: overhead")

    def test_runs_say_their_text_and_what_they_read(self):
        self.open("text", "#pin=run,2")
        found = self.text("#details")
        self.assertRegex(found, r"token id\s+(\d+) “ <i>t\1</i>”")
        self.assertRegex(found, r"sampled\s+token (\d+) “ <i>t\1</i>”")
        rows = self.page.run("[...document.querySelectorAll('#details .read summary span:first-child')].map(e => "
                             "e.innerText)")
        self.assertEqual(rows, ["outside of layers", *(f"layer {i}" for i in range(30))])   # in the order of numbers
        self.page.run("document.querySelectorAll('#details .read')[5].open = true")
        self.assertIn("blk.4.ffn_down.weight", self.text("#details .read:nth-of-type(6)"))
        self.open("text", "#pin=run,0")
        self.assertRegex(self.text("#details"), r"token ids\s+1 “ <i>t1</i>” \d+ “")

    def test_links_open_at_the_same_place(self):
        self.open("dense", "#phase=prefill&tabs=layers.value:bytes,roofline.by:layer&tab=layers")
        self.assertIn("Findings: prefill", self.text("#details"))
        self.assertRegex(self.text("#stage .total"), "iB")
        self.open("dense", "#pin=event,5,40")
        details = self.text("#details")
        self.page.run("[...document.querySelectorAll('#details button')].find(b => "
                      "b.textContent === 'Zoom to it').click()")
        self.page.frames(3)
        self.page.run("document.getElementById('link').click()")
        link = self.page.run("location.href")
        self.assertRegex(link, r"view=\d+-\d+.*pin=event,5,40")
        first, last = map(int, link.split("view=")[1].split("&")[0].split("-"))
        self.assertLess(last - first, 2_000_000)   # of a session of half a second: one step and a little more
        self.page.open("about:blank")
        self.page.open(link)
        self.page.wait("document.querySelector('#status').textContent.includes('kernels')")
        self.page.frames(3)
        self.assertEqual(self.text("#details"), details)
        self.assertEqual(self.page.run("location.hash"), "#" + link.split("#")[1])

    def test_pictures_are_saved(self):
        self.open("experts")
        self.page.run("""(() => {
            window.saved = [];
            const real = URL.createObjectURL;
            URL.createObjectURL = blob => { window.saved.push(blob); return real.call(URL, blob); };
            HTMLAnchorElement.prototype.click = function () { window.savedName = this.download; };
        })()""")
        for tab in ("timeline", "heat", "layers", "experts", "roofline", "graph"):
            with self.subTest(tab=tab):
                self.tab(tab)
                before = None if tab == "layers" else self.page.run(INK)
                self.page.run("(window.saved.length = 0, document.getElementById('save-svg').click())")
                self.page.wait("window.saved.length")
                elements, broken, text = self.page.run("""window.saved.at(-1).text().then(text => {
                    const page = new DOMParser().parseFromString(text, 'image/svg+xml');
                    return [page.querySelectorAll('rect, path, image').length,
                            page.querySelectorAll('parsererror, script, foreignObject').length,
                            page.querySelectorAll('text').length];
                })""")
                self.assertEqual(broken, 0)
                self.assertGreater(elements, 20)
                self.assertGreater(text, 8)
                self.assertEqual(self.page.run("window.savedName"), f"experts-{tab}.svg")
                self.page.run("(window.saved.length = 0, document.getElementById('save-png').click())")
                self.page.wait("window.saved.length")
                colours = self.page.run("""createImageBitmap(window.saved.at(-1)).then(image => {
                    const canvas = document.createElement('canvas');
                    [canvas.width, canvas.height] = [image.width, image.height];
                    const context = canvas.getContext('2d');
                    context.drawImage(image, 0, 0);
                    const data = context.getImageData(0, 0, image.width, image.height).data;
                    return new Set(new Uint32Array(data.buffer)).size;
                })""")
                self.assertGreater(colours, 8)
                self.page.frames(3)
                if before:   # and the page is as it was
                    self.assertEqual(self.page.run(INK), before)

    def test_two_traces_side_by_side(self):
        self.open("dense")
        self.page.choose_file("#file-beside", trace("other"))
        self.page.wait("document.querySelector('#stage .beside')")
        self.page.frames(3)
        found = self.text("#stage")
        self.assertIn("other tokens or positions", found)      # another seed
        self.assertRegex(found, r"(?m)^Event|touches other bytes|touch other bytes")
        self.assertRegex(found, r"decode ffn mul_mat\s+× (1\.9|2\.0)\d")   # at half the read rate
        self.assertRegex(found, r"decode: a run of b takes (1\.9|2\.0)\d × as long as one of a")
        self.assertRegex(found, r"prompt\s+tokens 1 \d+ .*")
        self.assertIn("Findings of trace a", self.text("#details"))
        # Two timelines of one run on one scale: what took twice as long is twice as long.
        lanes = """(() => { const c = document.createElement('canvas'), from = document.querySelector('.lanes canvas');
            Object.assign(c, {width: from.width, height: from.height});
            const g = c.getContext('2d', {willReadFrequently: true});
            g.drawImage(from, 0, 0);
            const ground = y =>
            [...g.getImageData(c.width - 2, y, 1, 1).data].join(), row = y => { const out = [];
                for (let x = 30; x < c.width; ++x) out.push([...g.getImageData(x, y, 1, 1).data].join()); return out; };
            const empty = ground(4); return [4, 40].map(y => row(y).filter(p => p !== empty).length); })()"""
        a, b = self.page.run(lanes)
        self.assertTrue(1.7 < b / a < 2.3, (a, b))
        self.assertRegex(self.text(".lanes [role=status]"), r"Run \d+: a .* b .*Shown: 0 ns to")
        self.page.run("document.querySelector('.lanes canvas').focus()")
        self.page.key("+")
        self.assertNotRegex(self.text(".lanes [role=status]"), "Shown: 0 ns")
        for _ in range(3):
            self.page.key("ArrowLeft")
        self.assertRegex(self.text(".lanes [role=status]"), "Shown: 0 ns to")
        self.page.key("ArrowRight")
        box = self.page.run("(b => [b.x, b.y])(document.querySelector('.lanes canvas').getBoundingClientRect())")
        self.page.mouse("mouseMoved", box[0] + 60, box[1] + 8)
        self.page.frames(2)
        self.assertRegex(self.text(".lanes [role=status]"), r"(layer \d+ )?\w+: .* in a, .* in b")
        self.page.run("document.querySelector('.lanes [aria-label=\"Run after\"]').click()")
        self.page.frames(2)
        self.assertEqual(self.page.unnamed(), [])
        self.page.run("document.querySelector('#stage .beside button.link').click()")
        self.page.frames(3)
        self.assertIn("kernel", self.text("#details"))
        self.page.choose_file("#file-beside", trace("dense"))
        self.page.wait("document.querySelector('#stage .beside')?.innerText.includes('The same')")
        self.assertIn("None of", self.text("#stage"))

    def test_phone(self):
        try:
            self.page.size(390, 844, touch=True)
            self.open("experts")
            self.assertLessEqual(self.page.run("document.documentElement.scrollWidth"), 390)
            self.assertGreater(self.page.run("document.getElementById('stage').clientHeight"), 300)
            self.assertEqual(self.page.unnamed(), [])
            self.page.tap("#unfold")
            self.assertTrue(self.page.run("document.getElementById('details').clientHeight > 200"))
            self.assertIn("Layer 5 takes", self.text("#details"))
            self.assertGreaterEqual(self.page.run(
                "Math.min(...[...document.querySelectorAll('#details *')].filter(e => e.innerText).map(e => "
                "parseFloat(getComputedStyle(e).fontSize)))"), 11)
            self.page.tap("#fold")
            self.page.tap("#tab-layers")
            self.assertGreater(self.page.run("document.querySelectorAll('#stage td').length"), 100)
        finally:
            self.page.size(1440, 900)


if __name__ == "__main__":
    main()
