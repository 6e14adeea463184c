"""A real Redis, with what canhazgpu writes."""

from collections.abc import Iterator

import pytest

from tests.redis_server import Canhazgpu, redis_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canhazgpu]:
    with redis_server(tmp_path_factory.mktemp("redis")) as found:
        yield found
