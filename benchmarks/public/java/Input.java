// Licensed under the Apache License, Version 2.0.

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.memory.MemorySegment;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.types.RowKind;

/** Rows that are to be written, in memory before the clock runs: a file of values of one width for each column. */
final class Input {
    private final List<String> types = new ArrayList<>();
    private final List<Integer> widths = new ArrayList<>();
    private final List<MemorySegment[]> columns = new ArrayList<>();
    private MemorySegment kinds;

    /** directory; columns: [[name, type, width]]; `_kind` is no column of the table. */
    Input(JsonNode command) throws IOException {
        for (JsonNode column : command.get("columns")) {
            Path path = Path.of(command.get("directory").asText(), column.get(0).asText());
            MemorySegment values = MemorySegment.wrap(Files.readAllBytes(path));
            if (column.get(0).asText().equals("_kind")) {
                kinds = values;
            } else {
                types.add(column.get(1).asText());
                widths.add(column.get(2).asInt());
                columns.add(new MemorySegment[] {values});
            }
        }
    }

    GenericRow row(int number) {
        RowKind kind = kinds == null ? RowKind.INSERT : RowKind.fromByteValue(kinds.get(number));
        GenericRow row = new GenericRow(kind, columns.size());
        for (int field = 0; field < columns.size(); field++) {
            row.setField(field, value(field, number));
        }
        return row;
    }

    private Object value(int field, int number) {
        MemorySegment[] values = columns.get(field);
        int width = widths.get(field);
        return switch (types.get(field)) {
            case "INT", "DATE" -> values[0].getInt(number * width);
            case "BIGINT" -> values[0].getLong(number * width);
            case "DOUBLE" -> values[0].getDouble(number * width);
            case "TIMESTAMP(3)" -> Timestamp.fromEpochMillis(values[0].getLong(number * width));
            case "STRING" -> BinaryString.fromAddress(values, number * width, width);
            default -> throw new IllegalArgumentException(types.get(field));
        };
    }
}
