from pypaimon.streaming.maintenance.commit_maintenance import CommitMaintenance as CommitMaintenance
from pypaimon.streaming.maintenance.maintainer import Maintainer as Maintainer
from pypaimon.streaming.maintenance.plan import MaintenancePlan as MaintenancePlan
from pypaimon.streaming.maintenance.plan import MaintenanceReport as MaintenanceReport
