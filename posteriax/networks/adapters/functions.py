"""Plain functions: a pair ``(function, params)``, called as ``function(params, x)``."""

from collections.abc import Mapping
from typing import Any

from posteriax.networks.adapters.adapter import KEYS, Adapted, Call, Inputs, OptionalKey, Outputs, Params

ACCEPTS = "a (function, params) pair"


def adapt(obj: Any, call: Mapping[str, Any]) -> Adapted | None:
    if not (isinstance(obj, tuple) and len(obj) == 2 and callable(obj[0])):
        return None
    function, params = obj
    calling = Call.of(function, call)
    by_name = next((name for name in KEYS if calling.takes(name)), None)
    if by_name is None and calling.takes("key", by_keywords=True):
        by_name = "key"

    def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
        inputs, keywords = calling.arguments(x, training=key is not None)
        return function(params, *inputs, **keywords, **({by_name: key} if by_name else {}))

    return Adapted(apply, params)
