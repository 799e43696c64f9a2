"""Files and functions stay small enough to be read at one sitting."""

import ast
from pathlib import Path

import posteriax

PACKAGE = Path(posteriax.__file__).parent
LONGEST_FILE = 300
LONGEST_FUNCTION = 60  # without its docstring


def test_no_file_is_too_long():
    lengths = {path.relative_to(PACKAGE): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {str(path): lines for path, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_no_function_is_too_long():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                text = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
                lines = node.end_lineno - node.lineno + 1 - (text.end_lineno - text.lineno + 1 if text else 0)
                if lines > LONGEST_FUNCTION:
                    found[f"{path.relative_to(PACKAGE)}:{node.name}"] = lines
    assert found == {}
