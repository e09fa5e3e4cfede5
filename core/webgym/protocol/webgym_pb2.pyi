from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[DType]
    DTYPE_FLOAT16: _ClassVar[DType]
    DTYPE_FLOAT32: _ClassVar[DType]
    DTYPE_FLOAT64: _ClassVar[DType]
    DTYPE_UINT8: _ClassVar[DType]
    DTYPE_INT32: _ClassVar[DType]
    DTYPE_INT64: _ClassVar[DType]

class Packing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PACKING_RAW: _ClassVar[Packing]
    PACKING_UNIT_BYTES: _ClassVar[Packing]
    PACKING_BITS: _ClassVar[Packing]
    PACKING_XOR_ZLIB: _ClassVar[Packing]

class Purpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PURPOSE_UNSPECIFIED: _ClassVar[Purpose]
    PURPOSE_TRAIN: _ClassVar[Purpose]
    PURPOSE_VALIDATE: _ClassVar[Purpose]
    PURPOSE_EVALUATE: _ClassVar[Purpose]
    PURPOSE_COLLECT: _ClassVar[Purpose]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_TERMINATED: _ClassVar[Outcome]
    OUTCOME_TRUNCATED: _ClassVar[Outcome]
    OUTCOME_FAULT: _ClassVar[Outcome]
DTYPE_UNSPECIFIED: DType
DTYPE_FLOAT16: DType
DTYPE_FLOAT32: DType
DTYPE_FLOAT64: DType
DTYPE_UINT8: DType
DTYPE_INT32: DType
DTYPE_INT64: DType
PACKING_RAW: Packing
PACKING_UNIT_BYTES: Packing
PACKING_BITS: Packing
PACKING_XOR_ZLIB: Packing
PURPOSE_UNSPECIFIED: Purpose
PURPOSE_TRAIN: Purpose
PURPOSE_VALIDATE: Purpose
PURPOSE_EVALUATE: Purpose
PURPOSE_COLLECT: Purpose
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_TERMINATED: Outcome
OUTCOME_TRUNCATED: Outcome
OUTCOME_FAULT: Outcome

class Envelope(_message.Message):
    __slots__ = ("protocol_version", "schema_hash", "transitions", "summary", "task", "parameters")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_HASH_FIELD_NUMBER: _ClassVar[int]
    TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    schema_hash: str
    transitions: TransitionBatch
    summary: EpisodeSummary
    task: EpisodeTask
    parameters: ParameterHeader
    def __init__(self, protocol_version: _Optional[int] = ..., schema_hash: _Optional[str] = ..., transitions: _Optional[_Union[TransitionBatch, _Mapping]] = ..., summary: _Optional[_Union[EpisodeSummary, _Mapping]] = ..., task: _Optional[_Union[EpisodeTask, _Mapping]] = ..., parameters: _Optional[_Union[ParameterHeader, _Mapping]] = ...) -> None: ...

class Array(_message.Message):
    __slots__ = ("dtype", "shape", "data", "packing")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PACKING_FIELD_NUMBER: _ClassVar[int]
    dtype: DType
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    packing: Packing
    def __init__(self, dtype: _Optional[_Union[DType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ..., packing: _Optional[_Union[Packing, str]] = ...) -> None: ...

class NamedArray(_message.Message):
    __slots__ = ("name", "array")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    name: str
    array: Array
    def __init__(self, name: _Optional[str] = ..., array: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class TransitionBatch(_message.Message):
    __slots__ = ("episode", "attempt", "task", "first_sequence", "worker", "generation", "observations", "obs_index", "next_index", "action", "reward", "discount", "priority", "version")
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    OBS_INDEX_FIELD_NUMBER: _ClassVar[int]
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    DISCOUNT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    episode: str
    attempt: int
    task: str
    first_sequence: int
    worker: str
    generation: int
    observations: _containers.RepeatedCompositeFieldContainer[NamedArray]
    obs_index: Array
    next_index: Array
    action: Array
    reward: Array
    discount: Array
    priority: Array
    version: Array
    def __init__(self, episode: _Optional[str] = ..., attempt: _Optional[int] = ..., task: _Optional[str] = ..., first_sequence: _Optional[int] = ..., worker: _Optional[str] = ..., generation: _Optional[int] = ..., observations: _Optional[_Iterable[_Union[NamedArray, _Mapping]]] = ..., obs_index: _Optional[_Union[Array, _Mapping]] = ..., next_index: _Optional[_Union[Array, _Mapping]] = ..., action: _Optional[_Union[Array, _Mapping]] = ..., reward: _Optional[_Union[Array, _Mapping]] = ..., discount: _Optional[_Union[Array, _Mapping]] = ..., priority: _Optional[_Union[Array, _Mapping]] = ..., version: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class EpisodeTask(_message.Message):
    __slots__ = ("episode", "task", "params_json", "seed", "purpose", "priority", "max_steps", "version", "record")
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    episode: str
    task: str
    params_json: str
    seed: int
    purpose: Purpose
    priority: float
    max_steps: int
    version: int
    record: bool
    def __init__(self, episode: _Optional[str] = ..., task: _Optional[str] = ..., params_json: _Optional[str] = ..., seed: _Optional[int] = ..., purpose: _Optional[_Union[Purpose, str]] = ..., priority: _Optional[float] = ..., max_steps: _Optional[int] = ..., version: _Optional[int] = ..., record: bool = ...) -> None: ...

class EpisodeSummary(_message.Message):
    __slots__ = ("episode", "attempt", "task", "seed", "purpose", "success", "reward", "steps", "seconds", "version", "epsilon", "worker", "outcome", "fault", "staleness", "invalid_actions")
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    INVALID_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    episode: str
    attempt: int
    task: str
    seed: int
    purpose: Purpose
    success: bool
    reward: float
    steps: int
    seconds: float
    version: int
    epsilon: float
    worker: str
    outcome: Outcome
    fault: str
    staleness: int
    invalid_actions: int
    def __init__(self, episode: _Optional[str] = ..., attempt: _Optional[int] = ..., task: _Optional[str] = ..., seed: _Optional[int] = ..., purpose: _Optional[_Union[Purpose, str]] = ..., success: bool = ..., reward: _Optional[float] = ..., steps: _Optional[int] = ..., seconds: _Optional[float] = ..., version: _Optional[int] = ..., epsilon: _Optional[float] = ..., worker: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., fault: _Optional[str] = ..., staleness: _Optional[int] = ..., invalid_actions: _Optional[int] = ...) -> None: ...

class TensorEntry(_message.Message):
    __slots__ = ("name", "dtype", "shape", "offset", "size", "original")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: DType
    shape: _containers.RepeatedScalarFieldContainer[int]
    offset: int
    size: int
    original: DType
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[DType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., offset: _Optional[int] = ..., size: _Optional[int] = ..., original: _Optional[_Union[DType, str]] = ...) -> None: ...

class ParameterHeader(_message.Message):
    __slots__ = ("version", "generation", "tensors", "total_bytes", "chunk_bytes", "chunks", "sha256", "time")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    version: int
    generation: int
    tensors: _containers.RepeatedCompositeFieldContainer[TensorEntry]
    total_bytes: int
    chunk_bytes: int
    chunks: int
    sha256: bytes
    time: float
    def __init__(self, version: _Optional[int] = ..., generation: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[TensorEntry, _Mapping]]] = ..., total_bytes: _Optional[int] = ..., chunk_bytes: _Optional[int] = ..., chunks: _Optional[int] = ..., sha256: _Optional[bytes] = ..., time: _Optional[float] = ...) -> None: ...
