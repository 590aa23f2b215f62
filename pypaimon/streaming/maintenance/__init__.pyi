from pypaimon.streaming.maintenance.plan import MaintenancePlan as MaintenancePlan
from pypaimon.streaming.maintenance.plan import MaintenanceReport as MaintenanceReport
