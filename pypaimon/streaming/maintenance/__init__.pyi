from pypaimon.streaming.maintenance.plan import MaintenancePlan as MaintenancePlan
from pypaimon.streaming.maintenance.plan import MaintenanceReport as MaintenanceReport
from pypaimon.streaming.maintenance.tag_operations import create_tag as create_tag
from pypaimon.streaming.maintenance.tag_operations import delete_tag as delete_tag
from pypaimon.streaming.maintenance.tag_operations import list_tags as list_tags
from pypaimon.streaming.maintenance.tag_operations import rename_tag as rename_tag
from pypaimon.streaming.maintenance.tag_operations import replace_tag as replace_tag
from pypaimon.streaming.maintenance.tags import Tag as Tag
