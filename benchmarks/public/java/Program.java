// Licensed under the Apache License, Version 2.0.

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/** A program that obeys commands: one JSON object per line in, one per line out. */
abstract class Program {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final OperatingSystemMXBean SYSTEM =
            ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);

    abstract void obey(JsonNode command, ObjectNode reply) throws Exception;

    final void run() throws IOException {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode reply = JSON.createObjectNode();
            try {
                obey(JSON.readTree(line), reply);
            } catch (Exception | LinkageError failed) {
                reply.removeAll();
                reply.set("error", described(failed));
            }
            out.println(JSON.writeValueAsString(reply));
        }
        Runtime.getRuntime().halt(0);
    }

    private static ObjectNode described(Throwable failed) {
        failed.printStackTrace();
        Throwable cause = failed;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        StackTraceElement[] trace = cause.getStackTrace();
        return JSON.createObjectNode()
                .put("class", failed.getClass().getName())
                .put("message", String.valueOf(failed.getMessage()))
                .put("cause", cause.toString())
                .put("trace", trace.length == 0 ? "" : trace[0].toString());
    }

    /** Seconds on the clock. */
    static double clock() {
        return System.nanoTime() / 1e9;
    }

    /** Processor seconds of this JVM. */
    static double processor() {
        return SYSTEM.getProcessCpuTime() / 1e9;
    }
}
