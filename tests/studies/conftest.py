"""Smoke runs are shared by all tests of a study."""

import pytest

from posteriax import studies


@pytest.fixture(scope="session")
def smoke_folder(tmp_path_factory):
    """The folder of a study's smoke run, by the study's name; run once."""
    folders = {}

    def folder_of(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            studies.run_study(studies.STUDIES[name], folders[name], scale="smoke")
        return folders[name]

    return folder_of
