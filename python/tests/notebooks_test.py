# SPDX-License-Identifier: MIT
"""[P5] The notebooks of docs/notebooks run from top to bottom, with the plots that they promise."""
import os
import re
import unittest

import nbclient
import nbformat
from support import PROJECT, needs_smollm2


class Notebooks(unittest.TestCase):
    @needs_smollm2
    def test_notebooks_run(self):
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
