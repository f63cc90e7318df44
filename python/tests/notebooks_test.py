# SPDX-License-Identifier: MIT
"""[P5] The notebooks of docs/notebooks run from top to bottom, with the plots that they promise. [P1] Traces as tables
of pandas and pyarrow, and the viewer by %tinfer.trace."""
import os
import pathlib
import re
import tempfile
import unittest

import numpy as np

import tinfer
from support import BUILD, PROJECT, TINY, needs_smollm2


class Traces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = tinfer.Context(tinfer.Model.load(TINY), n_ctx=64)
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "a trace.tntrace")
        cls.observer = tinfer.Observer()
        with tinfer.TraceFile(cls.path) as file, context.attach(file), context.attach(cls.observer):
            context.decode([1, 5, 7])
            context.decode([5])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_tables(self):
        for source in (self.observer, tinfer.TraceReader(self.path)):
            columns = source.columns()
            frame, table = source.to_pandas(), source.to_arrow()
            self.assertEqual((list(frame.columns), table.column_names), (list(columns), list(columns)))
            self.assertEqual((len(frame), table.num_rows), (len(source.events), len(source.events)))
            for name, column in columns.items():
                self.assertEqual(frame[name].tolist(), column.tolist(), name)
                self.assertEqual(table[name].to_pylist(), column.tolist(), name)
            self.assertEqual(int(frame.groupby("op")["bytes_read"].sum().sum()),
                             int(np.sum(source.events["bytes_read"])))

    @unittest.skipUnless((BUILD / "bin/tinfer").exists(), "no program tinfer in this build")
    def test_the_viewer_in_a_notebook(self):
        from IPython.core.error import UsageError
        from IPython.core.interactiveshell import InteractiveShell
        shell, path = InteractiveShell.instance(), os.environ["PATH"]
        self.addCleanup(os.environ.update, PATH=path)
        shell.run_line_magic("load_ext", "tinfer")
        self.assertRaises(FileNotFoundError, shell.run_line_magic, "tinfer.trace", f"'{self.path}'")
        os.environ["PATH"] = f"{path}{os.pathsep}{BUILD / 'bin'}"
        shown = shell.run_line_magic("tinfer.trace", f"'{self.path}'")
        self.assertIn("<iframe srcdoc=", shown.data)
        self.assertIn("&lt;script", shown.data)           # the page is inside, and links to nothing
        self.assertGreater(len(shown.data), pathlib.Path(self.path).stat().st_size)
        self.assertRaises(ValueError, shell.run_line_magic, "tinfer.trace", "/no/such.tntrace")
        self.assertRaises(UsageError, shell.run_line_magic, "tinfer.cats", "")


class Notebooks(unittest.TestCase):
    @needs_smollm2
    def test_notebooks_run(self):
        import nbclient
        import nbformat
        os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
        paths = sorted((PROJECT / "docs/notebooks").glob("*.ipynb"))
        self.assertEqual(len(paths), 3)
        for path in paths:
            with self.subTest(notebook=path.name):
                notebook = nbformat.read(path, 4)
                for cell in notebook.cells:   # outputs are made, not kept: they would say whose machine it was
                    self.assertFalse(cell.get("outputs"), cell.source)
                n_plots = sum(len(re.findall(r"plt\.show\(\)", cell.source)) for cell in notebook.cells)
                nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3",
                                        resources={"metadata": {"path": str(PROJECT)}}).execute()
                outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
                self.assertEqual(sum("image/png" in output.get("data", {}) for output in outputs), n_plots)
                self.assertGreaterEqual(n_plots, 2)


if __name__ == "__main__":
    unittest.main()
