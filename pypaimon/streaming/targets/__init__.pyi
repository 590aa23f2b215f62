from pypaimon.streaming.targets.changes import last_changes as last_changes
from pypaimon.streaming.targets.dict_target import apply_to_dict as apply_to_dict
from pypaimon.streaming.targets.target import Target as Target
from pypaimon.streaming.targets.target import is_to_apply as is_to_apply
from pypaimon.streaming.targets.transform import RowVersions as RowVersions
from pypaimon.streaming.targets.transform import SoftDeletes as SoftDeletes
