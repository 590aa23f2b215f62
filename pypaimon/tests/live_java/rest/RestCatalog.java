import java.util.Collections;
import okhttp3.mockwebserver.Dispatcher;
import okhttp3.mockwebserver.MockResponse;
import okhttp3.mockwebserver.RecordedRequest;
import org.apache.paimon.rest.RESTCatalogServer;
import org.apache.paimon.rest.auth.AuthProvider;
import org.apache.paimon.rest.auth.BearTokenAuthProvider;
import org.apache.paimon.rest.responses.ConfigResponse;

/** Paimon's REST catalog over a directory: prints its address, and ends with its input. */
public final class RestCatalog {

    public static void main(String[] arguments) throws Exception {
        ConfigResponse config =
                new ConfigResponse(Collections.singletonMap("prefix", "paimon"), Collections.emptyMap());
        RESTCatalogServer server =
                new RESTCatalogServer(arguments[0], new BearTokenAuthProvider("token"), config, "lake") {
                    @Override
                    public Dispatcher initDispatcher(AuthProvider provider) {
                        return oneAtATime(super.initDispatcher(provider));
                    }
                };
        server.start();
        System.out.println(server.getUrl());
        while (System.in.read() >= 0) {
            // Until the input ends.
        }
        server.shutdown();
        System.exit(0);
    }

    /** Of two commits at once that server may take both. A catalog arbitrates. */
    private static Dispatcher oneAtATime(Dispatcher dispatcher) {
        return new Dispatcher() {
            @Override
            public synchronized MockResponse dispatch(RecordedRequest request) throws InterruptedException {
                return dispatcher.dispatch(request);
            }
        };
    }
}
