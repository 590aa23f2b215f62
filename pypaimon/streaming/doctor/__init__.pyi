from pypaimon.streaming.doctor.checks import diagnose as diagnose
from pypaimon.streaming.doctor.findings import Diagnosis as Diagnosis
from pypaimon.streaming.doctor.findings import Finding as Finding
from pypaimon.streaming.doctor.findings import Level as Level
