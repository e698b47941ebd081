"""Which service, bucket and key a request of botocore or aiobotocore is for.

The requests themselves are recorded where they are sent: `urllib3_requests`, `aiohttp_requests`.
"""

from __future__ import annotations

from .object_requests import OTHER_SERVICE, known
from .operations import error_without_text
from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel


def watch(module: ModuleType, channel: Channel) -> None:
    """botocore: one call is one attempt."""
    endpoint = module.Endpoint
    original = endpoint._do_get_response

    @wraps(original)
    def _do_get_response(self: Any, request: Any, model: Any, context: Any) -> Any:  # noqa: ANN401
        token = known.set(_known(model, context, channel))
        try:
            return original(self, request, model, context)
        finally:
            known.reset(token)

    endpoint._do_get_response = _do_get_response


def watch_async(module: ModuleType, channel: Channel) -> None:
    """aiobotocore: the same."""
    endpoint = module.AioEndpoint
    original = endpoint._do_get_response

    @wraps(original)
    async def _do_get_response(
        self: Any,  # noqa: ANN401
        request: Any,  # noqa: ANN401
        model: Any,  # noqa: ANN401
        context: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        token = known.set(_known(model, context, channel))
        try:
            return await original(self, request, model, context)
        finally:
            known.reset(token)

    endpoint._do_get_response = _do_get_response


def _known(model: Any, context: Any, channel: Channel) -> int | tuple[str | None, str | None]:  # noqa: ANN401
    try:
        if model.service_model.service_name != "s3":
            return OTHER_SERVICE
        asked = (context.get("s3_redirect") or {}).get("params") or {}
        return asked.get("Bucket"), asked.get("Key")
    except Exception as error:
        channel.fail(error_without_text(error))
        return None, None
