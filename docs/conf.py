"""The site: `make docs` builds it into site/. Why Sphinx: docs/decisions/2026-11-19-site.md."""

import contextlib
import inspect
import os
import re
from pathlib import Path

import nbformat
from jupyter_cache import get_cache

import posteriax

ROOT = Path(__file__).parents[1]

project = "posteriax"
author = "The posteriax developers"
copyright = author
version = release = posteriax.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
suppress_warnings = [
    "toc.not_included",  # decisions and results are listed by their own pages
    "myst-nb.lexer",  # the language of cells is known once they are executed
]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext"}

# pages
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm, which NumPyro imports, asks for widgets
nb_execution_mode = "cache"
nb_execution_in_temp = True  # examples save files
nb_execution_cache_path = str(ROOT / "docs" / "_build" / "cache")
nb_execution_raise_on_error = False  # a failing cell is a warning: -W fails the build, once all have been tried
nb_execution_timeout = 600
nb_execution_show_tb = True
nb_merge_streams = True
nb_kernel_rgx_aliases = {".*": "python3"}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# the reference
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 90
napoleon_numpy_docstring = False
default_role = "literal"  # docstrings put code between single backquotes
toc_object_entries_show_parents = "hide"

# how it looks: everything comes from the site itself, so that it can be read without a network
html_theme = "furo"
html_title = f"posteriax {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
templates_path: list[str] = []
pygments_style = "friendly"
pygments_dark_style = "native"

ROOMS = {
    "posteriax": "What a program usually needs: `import posteriax as px`.",
    "posteriax.families": "Shapes of approximate posteriors: `from posteriax import families as q`.",
    "posteriax.priors": "Priors of weights: `from posteriax import priors as p`.",
    "posteriax.likelihoods": "What outputs mean, and the predictives that follow.",
    "posteriax.methods": "How to infer a posterior.",
    "posteriax.posterior": "What was inferred.",
    "posteriax.run": "The loop, its stop rules, observers and checkpoints.",
    "posteriax.networks": "Networks of any library, and their leaves.",
    "posteriax.data": "Data sets, batches, augmentation and corruptions.",
    "posteriax.diagnostics": "Has it converged? Have the chains mixed?",
    "posteriax.metrics": "Scores, as functions of arrays.",
    "posteriax.evaluation": "Comparisons, recommendations, reports, shift, attacks, conformal sets.",
    "posteriax.analysis": "What the papers look at inside a posterior.",
    "posteriax.zoo": "The papers' architectures.",
    "posteriax.distributed": "Many devices and processes.",
    "posteriax.sklearn": "scikit-learn estimators.",
    "posteriax.studies": "The papers' experiments, with a verdict on each claim.",
}
SECTION = re.compile(r"^(Args|Arguments|Attributes|Example|Examples|Note|Notes|Raises|Returns|Yields|Keyword Args):$")


def public_names(room):
    names = getattr(room, "__all__", None) or [name for name in vars(room) if not name.startswith("_")]
    return sorted(dict.fromkeys(names), key=str.lower)


def is_ours(name, value):
    home = getattr(value, "__module__", None) or ""
    return home.startswith("posteriax") if callable(value) else name.isupper()


def write_reference(app):
    """One page for every room: each name once, where it is defined; other pages link to it."""
    from importlib import import_module

    folder = Path(app.srcdir) / "api"
    seen = {}
    for module, sentence in ROOMS.items():
        room = import_module(module)
        head = [module, "=" * len(module), "", sentence.replace("`", "``"), "", f".. py:module:: {module}", ""]
        lines, elsewhere = [], []
        for name in public_names(room):
            value = getattr(room, name)
            if inspect.ismodule(value) or not is_ours(name, value):
                continue
            kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
            if kind != "data" and id(value) in seen:
                elsewhere.append(f":py:obj:`{name} <{seen[id(value)]}>`")
                continue
            seen[id(value)] = f"{module}.{name}"
            if kind == "data":
                lines += [f".. py:data:: {module}.{name}", f"   :type: {type(value).__name__}", ""]
                continue
            lines += [f".. auto{kind}:: {module}.{name}"]
            if kind == "class":
                lines += ["   :members:", "   :show-inheritance:"]
            lines += [""]
        if elsewhere:
            head += ["Also here, and described on another page: " + ", ".join(elsewhere) + ".", ""]
        page = folder / f"{module.removeprefix('posteriax.')}.rst"
        text = "\n".join(head + lines)
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def tidy_docstring(app, what, name, value, options, lines):
    """Docstrings call the package `px`, and indent formulas without announcing them."""
    tidied, in_section, previous = [], False, ""
    for line in lines:
        if line and not line.startswith(" "):
            in_section = bool(SECTION.match(line))
        starts_block = line.startswith("    ") and not previous.strip()
        if starts_block and not in_section and tidied and not in_block(tidied):
            tidied += ["::", ""]
        line = re.sub(r"(:\w+:`~?)px\.", r"\1posteriax.", line)
        if not line.startswith((" ", ">>>", "...")):  # |w| is an absolute value, not a substitution
            code = line.split("`")
            line = "`".join(part if i % 2 else part.replace("|", r"\|") for i, part in enumerate(code))
        tidied.append(line)
        previous = line
    lines[:] = tidied


def in_block(lines):
    """Whether an indented block is already open, or the line before announces one."""
    for line in reversed(lines):
        if line.strip() and not line.startswith(" "):
            return line.endswith("::") or line.startswith(("* ", "- ", ">>>", "..."))
    return False


def skip_member(app, what, name, value, skip, options):
    """scikit-learn gives every estimator a dozen methods that route metadata."""
    return True if re.fullmatch(r"(set|get)_(\w+_request|metadata_routing)", name) else None


def link_within_the_site(app, docname, source):
    """Pages link to CONTRIBUTING.md and the like at the root of the repository, which are pages of the site as well."""
    up = "../" * docname.count("/")
    for file, page in (("CONTRIBUTING", "contributing"), ("CHANGELOG", "changes"), ("SECURITY", "security")):
        source[0] = re.sub(rf"\]\((?:\.\./)+{file}\.md", f"]({up}{page}.md", source[0])


LONG_TYPES = (
    (r"Array \| ndarray \| bool \| number \| bool \| int \| float \| complex", "ArrayLike"),
    (r"Callable\[\[ArrayLike\], ArrayLike\]", "Schedule"),
)


def shorten_types(app, what, name, value, options, signature, returned):
    """Aliases are expanded when annotations are evaluated: write the usual ones by their names."""
    texts = [signature, returned]
    for pattern, alias in LONG_TYPES:
        texts = [text and re.sub(pattern, alias, text) for text in texts]
    return tuple(texts)


def is_notebook(app, page):
    source = Path(app.srcdir, f"{page}.md")
    return source.exists() and source.read_text().startswith("---\nfile_format: mystnb")


def offer_notebook(app, page, template, context, doctree):
    """A link at the end of an executed page, to its notebook with outputs."""
    if doctree is not None and is_notebook(app, page):
        name = page.rsplit("/", 1)[-1]
        context["body"] += f'<p class="notebook"><a href="{name}.ipynb" download>This page as a notebook</a></p>'


def copy_notebooks(app, error):
    """Put each executed notebook beside its page. MyST-NB leaves those that it did not run again without outputs."""
    if error is not None or app.builder.format != "html":
        return
    cache = get_cache(app.env.mystnb_config.execution_cache_path)
    for page in app.env.found_docs:
        stored = Path(app.env.mystnb_config.output_folder, f"{page}.ipynb")
        if is_notebook(app, page) and stored.exists():
            notebook = nbformat.read(stored, as_version=4)
            with contextlib.suppress(KeyError):
                _, notebook = cache.merge_match_into_notebook(notebook)
            nbformat.write(notebook, Path(app.outdir, f"{page}.ipynb"))


def setup(app):
    app.connect("html-page-context", offer_notebook)
    app.connect("build-finished", copy_notebooks)
    app.connect("autodoc-process-signature", shorten_types)
    app.connect("source-read", link_within_the_site)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-docstring", tidy_docstring, priority=100)  # before napoleon's
