"""Reading weights: safetensors only, compared with the checksum in the manifest beside them."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from stillhouse.core.errors import BadInput, blocked
from stillhouse.core.integrity import intact


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file into CPU memory.

    Raises:
        Hindered: The file belongs to a finished stage and was damaged, or the system refuses to open it.
        BadInput: It is missing, truncated, or not safetensors.
    """
    try:
        tensors: dict[str, Tensor] = load_file(intact(path))
    except FileNotFoundError:
        raise BadInput(f"A file of weights must exist, but there is no {path}.") from None
    except SafetensorError as error:
        raise BadInput(
            f"{path} must be a complete safetensors file, but reading it gave: {error}. Copy or download it "
            "again."
        ) from None
    except OSError as error:
        raise blocked(path, error) from None
    return tensors
